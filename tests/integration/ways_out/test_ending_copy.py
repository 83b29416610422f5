"""Tests the way out of a copy that a statement has interrupted, and that cannot be completed before the task's end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.integration.ways_out.printed import Operator, Printed, errors_of
from tests.support.wait import until
from tests.support.world import World

NAME = "way_30016"
SECONDS = 30


def _text(world: World, extra: str) -> str:
    lines = world.head_of_task(NAME, extra or "route-rules: []")
    text = "\n".join((*lines, f"block-allow-list: {{own: {{do-dbs: [{NAME}]}}}}"))
    return text + "\nsnapshot: {chunk-rows: 100, threads: 1}\n"


def test_a_task_without_an_end_copies_the_rest(world: World) -> None:
    source, cluster = world.sources[0][1], world.cluster
    source.execute(
        f"CREATE DATABASE {NAME}",
        f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {NAME}.t SELECT seq, seq FROM {NAME}.seq_1_to_2000",
    )
    end = datetime.now(UTC) + timedelta(seconds=SECONDS)
    cluster.hooks.hold("snapshot.before_commit")
    cluster.start_task(_text(world, f'stop-at: "{end.isoformat(timespec="seconds")}"'))
    cluster.hooks.reached("snapshot.before_commit")
    source.execute(f"ALTER TABLE {NAME}.t ADD COLUMN w INT DEFAULT 1")
    until(lambda: datetime.now(UTC) > end + timedelta(seconds=2), "the end has passed", 2.0 * SECONDS)
    source.execute(f"UPDATE {NAME}.t SET w = 2 WHERE id % 2 = 0")
    cluster.hooks.release("snapshot.before_commit")

    def failed() -> Printed | None:
        for subtask in cluster.subtasks(NAME).values():
            for error in errors_of(subtask.raw):
                if int(error["code"]) == 30016:
                    return Printed.of(error)
        return None

    printed = until(failed, "the rest cannot be copied", 120)
    operator = Operator(world.cluster, NAME, cluster.write(f"{NAME}.task.yaml", _text(world, "")))
    operator.runs(printed, "stop-task")
    operator.runs(printed, "start-task")
    world.cluster.wait_joined(NAME)
    world.settle([NAME])
    query = f"SELECT * FROM {NAME}.t ORDER BY id"
    assert world.target.query(query) == source.query(query)
    cluster.dmctl("stop-task", NAME)
