"""Tests that a new partitioning of the rows to the lanes loses and repeats nothing, wherever the lanes are (I2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.worker.unit.contract import Failed, Stopped
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import META, count_rows, subtask_config
from tests.support.database import Database
from tests.support.hooks import Hooks
from tests.support.mariadb import MariaDB
from tests.support.wait import until


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    made = Hooks(tmp_path / "hooks")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def rig(make_server: Callable[..., MariaDB], tmp_path: Path) -> Iterator[LaneRig]:
    """Provide a table with a key, whose rows belong to every lane, and one without, where a repeated row is visible."""
    source, target = make_server("source"), make_server("target")
    source.execute(
        "CREATE DATABASE shard_1",
        "CREATE TABLE shard_1.t (id BIGINT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE shard_1.log (id BIGINT, v VARCHAR(20))",
    )
    with LaneRig(source, target, tmp_path, subtask_config(target)) as made:
        yield made


def _insert(rig: LaneRig, first: int, last: int, value: str) -> None:
    for start in range(first, last + 1, 10):
        rows = ", ".join(f"({number}, '{value}')" for number in range(start, min(start + 10, last + 1)))
        rig.source.execute(f"INSERT INTO shard_1.t VALUES {rows}", f"INSERT INTO shard_1.log VALUES {rows}")


def _content(server: Database, table: str) -> list[tuple[object, ...]]:
    return server.query(f"SELECT * FROM {table} ORDER BY id, v")


def _same(rig: LaneRig, *tables: str) -> None:
    for table in tables or ("shard_1.t", "shard_1.log"):
        assert _content(rig.target, table) == _content(rig.source, table)


def _lanes_apart(rig: LaneRig, hooks: Hooks, lanes: int) -> Run:
    """Return a run whose lane 0 is held before a commit until the hook is released, and whose other lanes have applied
    everything."""
    run = rig.replicate(lanes)
    _insert(rig, 1, 40, "first")
    run.until_synced()
    hooks.hold("lane0.commit")
    _insert(rig, 41, 80, "second")
    rig.source.execute("UPDATE shard_1.t SET v = 'changed' WHERE id % 3 = 0")
    hooks.reached("lane0.commit")
    rig.until_past(rig.position(), range(1, lanes))
    assert len({place[1:] for place in rig.checkpoints()}) > 1, "the lanes stand apart"
    return run


def _next_run(rig: LaneRig, lanes: int) -> Run:
    """Return a run that has taken over: a commit of the previous run's held lanes can only be refused."""
    epoch = rig.epoch + 1
    run = rig.replicate(lanes)
    rig.until_taken_over(epoch)
    return run


def _until_dealt(rig: LaneRig, run: Run, lanes: int) -> None:
    """Wait until ``run`` has partitioned its rows to so many lanes and has applied everything, at the barrier and after
    it."""
    until(lambda: len(rig.checkpoints()) == lanes, f"there are {lanes} lanes")
    run.until_synced()


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 4), (4, 2)])
def test_another_number_of_lanes(rig: LaneRig, before: int, after: int) -> None:
    first = rig.replicate(before)
    _insert(rig, 1, 40, "first")
    first.until_synced()
    assert first.stop() == Stopped()
    _insert(rig, 41, 80, "second")
    second = rig.replicate(after)
    second.until_synced()
    _insert(rig, 81, 120, "third")
    rig.source.execute("UPDATE shard_1.t SET v = 'changed' WHERE id % 3 = 0", "DELETE FROM shard_1.t WHERE id % 7 = 0")
    second.until_synced()
    assert second.stop() == Stopped()
    assert [lane for lane, *_ in rig.checkpoints()] == list(range(after))
    _same(rig)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_lanes_that_stand_apart_meet_first(rig: LaneRig, hooks: Hooks, before: int, after: int) -> None:
    """Without the barrier a key would move to a lane that is at an earlier position (applied twice) or a later one
    (lost)."""
    zombie = _lanes_apart(rig, hooks, before)
    hooks.hold("lanes.before_dealing")
    second = _next_run(rig, after)
    hooks.release("lane0.commit")
    hooks.reached("lanes.before_dealing")
    places = rig.checkpoints()
    assert len(places) == before
    assert len({place[1:] for place in places}) == 1, "all of the old lanes stand at one place"
    assert all(skip == 0 for *_, skip in places)
    hooks.release("lanes.before_dealing")
    _until_dealt(rig, second, after)
    outcome = zombie.stop()
    assert isinstance(outcome, Failed | Stopped)
    assert second.stop() == Stopped()
    _same(rig)


def test_a_stop_while_lanes_meet_changes_nothing(rig: LaneRig, hooks: Hooks) -> None:
    zombie = _lanes_apart(rig, hooks, 2)
    second = rig.replicate(3)
    second.until_lane(0, lambda lane: lane.phase == "committing", "stands before its commit")
    second.stop_signal.set()
    hooks.release_all()
    assert second.join() == Stopped()
    assert len(rig.checkpoints()) == 2
    zombie.stop()
    third = rig.replicate(4)
    _until_dealt(rig, third, 4)
    assert third.stop() == Stopped()
    _same(rig)


def test_a_unique_key_that_the_target_got_meanwhile(rig: LaneRig, hooks: Hooks) -> None:
    """All keys of its table belong to one lane then, from the barrier on."""
    zombie = _lanes_apart(rig, hooks, 3)
    rig.target.execute("ALTER TABLE shard_1.t ADD COLUMN u BIGINT AS (id) PERSISTENT, ADD UNIQUE KEY (u)")
    second = _next_run(rig, 3)
    hooks.release_all()
    second.until_synced()
    zombie.stop()
    _insert(rig, 81, 100, "third")
    second.until_synced()
    assert second.stop() == Stopped()
    [(recorded,)] = rig.target.query(f"SELECT dealing FROM {META}.subtask")
    assert "`shard_1`.`t`" in str(recorded)
    columns = "SELECT id, v FROM shard_1.t ORDER BY id"
    assert rig.target.query(columns) == rig.source.query(columns)
    _same(rig, "shard_1.log")


@pytest.mark.parametrize("name", ["later", "log", "moved"])
def test_another_route_counts_from_the_barrier_on(rig: LaneRig, hooks: Hooks, name: str) -> None:
    """Up to the barrier every lane has followed the old rules: no row goes to both targets or to neither.

    The new target's name decides whether it belongs to the held lane or to one of those that have continued.
    """
    zombie = _lanes_apart(rig, hooks, 3)
    route = config_pb2.RouteRule(
        name="r", schema_pattern="shard_1", table_pattern="log", target_schema="other", target_table=name
    )
    rig.config.routes.append(route)
    rig.target.execute("CREATE DATABASE other")
    second = _next_run(rig, 3)
    hooks.release_all()
    second.until_synced()
    zombie.stop()
    _insert(rig, 81, 100, "third")
    second.until_synced()
    assert second.stop() == Stopped()
    old, new = _content(rig.target, "shard_1.log"), _content(rig.target, f"other.{name}")
    assert sorted([*old, *new]) == sorted(_content(rig.source, "shard_1.log"))
    assert [row for row in new if row[1] == "third"] == new
    _same(rig, "shard_1.t")


def test_a_table_that_took_no_part_does_not_come_back(rig: LaneRig) -> None:
    """Its changes in the meantime were skipped: its rows stop the task."""
    run = rig.replicate(2)
    _insert(rig, 1, 10, "first")
    run.until_synced()
    assert run.stop() == Stopped()
    rig.config.block_allow_list.ignore_tables.append(config_pb2.TableName(schema="shard_1", table="log"))
    run = rig.replicate(2)
    _insert(rig, 11, 20, "second")
    run.until_synced()
    assert run.stop() == Stopped()
    assert count_rows(rig.target, "shard_1.log") == 10
    del rig.config.block_allow_list.ignore_tables[:]
    run = rig.replicate(2)
    rig.source.execute("INSERT INTO shard_1.log VALUES (21, 'third')")
    outcome = run.join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.TABLE_UNKNOWN


def test_checkpoints_that_were_removed_are_no_smaller_number_of_lanes(rig: LaneRig) -> None:
    run = rig.replicate(3)
    _insert(rig, 1, 10, "first")
    run.until_synced()
    assert run.stop() == Stopped()
    rig.target.execute(f"DELETE FROM {META}.lane_checkpoint WHERE lane = 2")
    outcome = rig.replicate(3).join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.LANES_MISSING
