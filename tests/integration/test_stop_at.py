"""Tests `start-task --stop-at` through dmctl: every subtask ends at its own position, even after kills."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.cluster import SubTask, parse_position
from tests.support.database import Database
from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import Writer

TASK = "ended"


def _place(server: Database) -> str:
    file, pos = server.binlog_end()
    return f"{file}:{pos}"


def _ended_there(places: dict[str, str]) -> Callable[[SubTask], bool]:
    def holds(sub: SubTask) -> bool:
        file, _, pos = places[sub.source].rpartition(":")
        return sub.stage == "Finished" and sub.position == parse_position(f"({file}, {pos})")

    return holds


def test_a_killed_task_ends_at_the_place_of_each_source(world: World) -> None:
    hooks, cluster = world.cluster.hooks, world.cluster
    family = world.family(TASK)
    shards = family.create(500)
    with Writer(shards, seed=61) as writer:
        cluster.start_task(family.task())
        cluster.wait_replicating(TASK)
        cluster.dmctl("stop-task", TASK)
        writer.go_on(1000)
        writer.stop()
    places = {source: _place(server) for source, server in world.sources}
    for _, server in world.sources:
        server.execute(f"CREATE TABLE {TASK}_01.kept SELECT * FROM {TASK}_01.order_01",
                       f"DELETE FROM {TASK}_01.order_01")  # fmt: skip
    hooks.hold("lane0.commit")
    for source, place in places.items():
        cluster.start_task(family.task(), "-s", source, "--stop-at", place)
    until(lambda: len(hooks.reached("lane0.commit")) >= len(places), "lane 0 of every source is held")
    for worker in cluster.workers:
        worker.kill_all()
    hooks.release_all()
    for worker in cluster.workers:
        worker.start()
    cluster.wait_subtasks(TASK, _ended_there(places), f"has ended at {places}")
    for daemon in cluster.daemons:
        daemon.restart()
    ended = cluster.wait_subtasks(TASK, _ended_there(places), f"still says that it ended at {places}")
    assert {sub.raw["sync"]["stopAt"] for sub in ended.values()} == set(places.values())

    # Restore the sources to their state at the positions: later changes are undone there, but never reached the target.
    for _, server in world.sources:
        server.execute(f"INSERT INTO {TASK}_01.order_01 SELECT * FROM {TASK}_01.kept", f"DROP TABLE {TASK}_01.kept")
    verdict = family.verdict()
    assert verdict.differences == 0, verdict
    assert verdict.rows > 500
    cluster.dmctl("stop-task", TASK)
