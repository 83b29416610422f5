"""Tests secondary indexes that wait for the end of the load: the target ends with exactly the source's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2
from shardmerge.proto.failpoints import MadeToFail
from shardmerge.proto.process.periodic import CLOCK, Clock
from shardmerge.worker.core.mysql.connection import Side
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.tables import deferred_index_store
from shardmerge.worker.target.tables.deferred_index import DeferredIndex
from shardmerge.worker.target.tables.index_adder import IndexAdder
from shardmerge.worker.unit.contract import Finished
from tests.integration.snapshot_rig import META, Rig, subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.fake_clock import FastClock
from tests.support.hooks import Hooks
from tests.support.pair import emptied
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

ROWS = 30_000
DEFINITION = (
    "id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(40), c INT AS (a * 2), u INT NOT NULL, w TEXT, "
    "UNIQUE KEY u (u), KEY k_a (a), KEY `b'``,(` (b(5), a) COMMENT 'x, (y', KEY c (c), FULLTEXT KEY w (w)"
)
LACKING = {"PRIMARY", "u", "c", "w"}
ALL = LACKING | {"k_a", "b'`,("}
TARGET = TargetTable("shard", "t")


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Hooks]:
    hooks = Hooks(tmp_path / "hooks")
    yield hooks
    # A thread of a failed test would hold the target's lock for ever.
    hooks.release_all()


def deferring(target: Database, **snapshot: object) -> config_pb2.SubTaskConfig:
    config = subtask_config(target, **snapshot)
    config.load.defer_indexes = True
    return config


def make(source: Database, rows: int = ROWS) -> None:
    make_tables(
        source,
        f"CREATE TABLE t ({DEFINITION}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
        f"INSERT INTO t (id, a, b, u, w) SELECT seq, seq % 97, HEX(seq * 7919), seq, 'x' FROM seq_1_to_{rows}",
        "ANALYZE TABLE t",
    )


def indexes(target: Database) -> set[object]:
    return {row[2] for row in target.query("SHOW INDEX FROM shard.t")}


def creation(server: Database) -> set[str]:
    """Return the lines of the CREATE TABLE as a set: an added index comes after the others."""
    [(_, text)] = server.query("SHOW CREATE TABLE shard.t")
    return {line.rstrip(",") for line in str(text).splitlines()}


def owed(target: Database) -> int:
    [(count,)] = target.query(f"SELECT COUNT(*) FROM {META}.deferred_index")
    assert isinstance(count, int)
    return count


def adder_of(rig: Rig, *, patient: bool = True, clock: Clock = CLOCK) -> IndexAdder:
    targets = [plan.target for plan in rig.plans]
    return IndexAdder(rig.target_endpoint, META, rig.config.task, targets, patient=patient, clock=clock)


@pytest.mark.turns
def test_added_after_the_load(source: Database, target: Database, tmp_path: Path) -> None:
    """The indexes are missing while rows are loaded, and later have the same order as at the source."""
    make(source)
    with Rig(source, target, tmp_path, deferring(target)) as rig:
        unit = rig.unit()
        assert indexes(target) == LACKING
        assert owed(target) == 2
        assert isinstance(unit.run(StopSignal()), Finished)
        assert indexes(target) == LACKING
        adder = adder_of(rig)
        adder.add(StopSignal())
        assert adder.activity() == ""
    assert indexes(target) == ALL
    assert owed(target) == 0
    # The result equals that without deferred indexes.
    made = creation(target)
    with Rig(source, emptied(target), tmp_path / "again", subtask_config(target)) as rig:
        rig.context()
    assert creation(target) == made


@pytest.mark.parametrize("moment", ["deferred.recorded", "deferred.before_alter", "deferred.added"])
def test_interrupted(source: Database, target: Database, tmp_path: Path, hooks: Hooks, moment: str) -> None:
    """The next process completes the steps that the interrupted one did not reach."""
    make(source)
    with Rig(source, target, tmp_path, deferring(target)) as rig:
        hooks.fail(moment)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(MadeToFail):
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            assert isinstance(rig.run(), Finished)
            adder_of(rig).add(StopSignal())
        hooks.release(moment)
        assert owed(target) == 2
        assert isinstance(rig.run(), Finished)
        adder_of(rig).add(StopSignal())
    assert indexes(target) == ALL
    assert owed(target) == 0


@pytest.mark.turns
def test_while_the_alter_of_a_killed_process_continues(
    source: Database, target: Database, tmp_path: Path, hooks: Hooks
) -> None:
    """The ALTER holds the lock as long as its connection lives: the next process waits, and finds the indexes added."""
    make(source)
    with Rig(source, target, tmp_path, deferring(target)) as rig:
        assert isinstance(rig.run(), Finished)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            hooks.hold("deferred.before_alter")
            first = threading.Thread(target=lambda: adder_of(rig).add(StopSignal()), daemon=True)
            first.start()
            hooks.reached("deferred.before_alter")
            adder = adder_of(rig)
            second = threading.Thread(target=lambda: adder.add(StopSignal()), daemon=True)
            second.start()
            until(lambda: "of the target holds" in adder.activity(), "the second one waits", 30)
            hooks.release_all()
            first.join(300)
            second.join(300)
    assert indexes(target) == ALL
    assert owed(target) == 0


def test_a_table_that_was_there_is_left_alone(source: Database, target: Database, tmp_path: Path) -> None:
    make(source)
    target.execute(
        "CREATE DATABASE shard", "CREATE TABLE shard.t (id INT PRIMARY KEY, a INT, b VARCHAR(40), u INT, w TEXT)"
    )
    with Rig(source, target, tmp_path, deferring(target)) as rig:
        assert isinstance(rig.run(), Finished)
        adder_of(rig).add(StopSignal())
    assert indexes(target) == {"PRIMARY"}


def test_small_tables_and_tables_without_a_key_have_them_at_once(
    source: Database, target: Database, tmp_path: Path
) -> None:
    make(source, rows=50)
    source.execute(
        "CREATE TABLE shard.keyless (a INT, KEY k_a (a))",
        "INSERT INTO shard.keyless SELECT x.a FROM shard.t x, shard.t y, shard.t z LIMIT 30000",
        "ANALYZE TABLE shard.keyless",
    )
    with Rig(source, target, tmp_path, deferring(target)) as rig:
        rig.unit()
    assert indexes(target) == ALL
    assert owed(target) == 0
    assert len(target.query("SHOW INDEX FROM shard.keyless")) == 1


def test_the_last_source_adds_them(source: Database, target: Database, tmp_path: Path) -> None:
    """While another source of the task loads the table, a finished source reports that and leaves the indexes to the
    other one."""
    make(source)
    with Rig(source, target, tmp_path, deferring(target)) as rig:
        assert isinstance(rig.run(), Finished)
        session = rig.session(Side.TARGET)
        with session.cursor() as cursor:
            cursor.execute(f"INSERT INTO {META}.snapshot_table VALUES ('merge', 's2', 0, 'shard', 't', 'shard', 't')")
        adder = adder_of(rig)
        adder.add(StopSignal())
        assert adder.activity() == "the indexes of `shard`.`t` are added when s2 has loaded it"
        assert indexes(target) == LACKING

        # Insert chunks of the other source, like those that the snapshot of s1 has left.
        with session.cursor() as cursor:
            cursor.execute(f"CREATE TEMPORARY TABLE {META}.mine SELECT * FROM {META}.snapshot_chunk")
            cursor.execute(f"UPDATE {META}.mine SET source = 's2', state = 0")
            cursor.execute(f"INSERT INTO {META}.snapshot_chunk SELECT * FROM {META}.mine")
        adder.add(StopSignal())
        assert indexes(target) == LACKING

        stop = StopSignal()
        with adder.running(stop):
            with session.cursor() as cursor:
                cursor.execute(f"UPDATE {META}.snapshot_chunk SET state = 1")
            until(lambda: owed(target) == 0, "they are added")
        session.close()
    assert indexes(target) == ALL


@pytest.mark.turns
def test_not_to_wait_adds_them_at_once(source: Database, target: Database, tmp_path: Path) -> None:
    """With load.defer-indexes off, missing indexes are added although another source still loads."""
    make(source)
    with Rig(source, target, tmp_path, deferring(target)) as rig:
        assert isinstance(rig.run(), Finished)
        target.execute(f"INSERT INTO {META}.snapshot_table VALUES ('merge', 's2', 0, 'shard', 't', 'shard', 't')")
        adder_of(rig, patient=False).add(StopSignal())
    assert indexes(target) == ALL


def test_what_cannot_be_added_is_reported_and_tried_again(source: Database, target: Database, tmp_path: Path) -> None:
    """The stream continues in parallel."""
    make(source)
    with Rig(source, target, tmp_path, deferring(target)) as rig:
        assert isinstance(rig.run(), Finished)
        session = rig.session(Side.TARGET)
        right = deferred_index_store.read_owed(session, META, TARGET)
        deferred_index_store.record(session, META, TARGET, (*right, DeferredIndex("x", "KEY `x` (`gone`)")))
        adder = adder_of(rig, clock=FastClock(0.1))
        with adder.running(StopSignal()):
            until(lambda: "30013" in adder.activity() and "errno 1072" in adder.activity(), "it is told")
            assert indexes(target) == LACKING
            deferred_index_store.record(session, META, TARGET, right)
            until(lambda: indexes(target) == ALL, "it is tried again")
        session.close()
