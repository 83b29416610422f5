"""Tests a bug in a Spark task: query-status reports error and place, the other tasks end, and nothing is half done."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from shardmerge.proto import errors
from tests.support.wait import until
from tests.support.world import Family, World

LANES = "replicate:\n  lanes: 2\n"
SNAPSHOT = "snapshot:\n  threads: 2\n  chunk-rows: 100\n"


def _paused_with_internal_error(world: World, task: str, job: str, moment: str) -> None:
    """Wait for the error of every subtask; ``job``: the job whose task failed, at ``moment``."""
    for source, sub in world.cluster.wait_paused(task).items():
        [(code, message)] = sub.errors
        assert code == errors.worker.INTERNAL.code
        assert message.startswith("unexpected MadeToFail in Spark task "), message
        assert f" of {job} {task} {source}: at " in message

    def told() -> bool:
        # The traceback is transported separately from the error: by the task's standard error, which the JVM forwards.
        logs = "".join(worker.log.read_text(encoding="utf-8") for worker in world.cluster.workers)
        return "Traceback" in logs and f"shardmerge.proto.failpoints.MadeToFail: at {moment}\n" in logs

    until(told, "the log has the traceback")


def _goes_on(world: World, family: Family) -> None:
    world.cluster.hooks.release_all()
    world.cluster.dmctl("resume-task", family.name)
    world.cluster.wait_replicating(family.name)
    world.judge(family)
    world.cluster.dmctl("stop-task", family.name)


def _insert(family: Family) -> None:
    columns = "(id, customer, amount, state, token, created)"
    for shard in family.shard_tables():
        with shard.connect() as connection, connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {shard.name} {columns} VALUES (%s, 'late', 1, 'new', '', '2024-01-01')",
                [(number,) for number in range(5000, 5020)],
            )
            connection.commit()


@pytest.mark.parametrize("moment", ["lane1.commit", "lane1.before_commit"])
def test_a_bug_in_a_lane(world: World, moment: str) -> None:
    family = world.family(f"lane_bug_{moment.rpartition('.')[2]}")
    family.create(50)
    world.cluster.start_task(family.task(extra=LANES))
    world.cluster.wait_replicating(family.name)
    world.cluster.hooks.fail(moment)
    _insert(family)
    _paused_with_internal_error(world, family.name, "replicate", moment)
    _goes_on(world, family)


@pytest.mark.parametrize("moment", ["snapshot.before_commit", "snapshot.after_commit"])
def test_a_bug_in_a_chunk_reader(world: World, moment: str) -> None:
    family = world.family(f"chunk_bug_{moment.rpartition('.')[2]}")
    family.create(1000)
    world.cluster.hooks.fail(moment)
    world.cluster.start_task(family.task(extra=SNAPSHOT))
    _paused_with_internal_error(world, family.name, "snapshot", moment)
    _goes_on(world, family)


def test_a_chunk_reader_that_is_killed_is_a_lost_task(world: World) -> None:
    """It is no bug: the reader is started again."""
    family = world.family("chunk_lost")
    family.create(1000)
    hooks = world.cluster.hooks
    hooks.hold("snapshot.before_commit")
    world.cluster.start_task(family.task(extra=SNAPSHOT))
    for pid in hooks.reached("snapshot.before_commit"):
        # Spark ends the other tasks of the job when one is lost.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def lost() -> bool:
        logs = [worker.log.read_text(encoding="utf-8") for worker in world.cluster.workers]
        named = f"[{errors.worker.SPARK_TASK_LOST.code} {errors.worker.SPARK_TASK_LOST.name}]"
        return any(f"{named} a Spark task of snapshot {family.name} " in log for log in logs)

    until(lost, "the worker says that the task was lost")
    hooks.release_all()
    world.cluster.wait_replicating(family.name)
    world.judge(family)
    world.cluster.dmctl("stop-task", family.name)
