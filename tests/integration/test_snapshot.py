"""Tests whole snapshots on real servers: plan, read, fix-up, load, handover; and the errors that stop them."""

from __future__ import annotations

import itertools
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import ServerInfo, Session
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.task_runner import TaskBody, TaskDone, TaskOutcome
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.reader.chunk_loader import ChunkLoader, ChunkTransaction
from shardmerge.worker.snapshot.reader.chunk_reader import ReaderTask
from shardmerge.worker.snapshot.source import watermarks
from shardmerge.worker.snapshot.source.watermarks import end_of_binlog
from shardmerge.worker.snapshot.unit import SnapshotUnit
from shardmerge.worker.unit.contract import Failed, Finished, Outcome
from tests.integration.snapshot_rig import SOURCE, TASK, Rig, count_rows, subtask_config
from tests.integration.snapshot_tables import (
    assert_merged,
    loaded_chunks,
    make_table,
    make_tables,
    merging,
    prepared,
    servers,
    shards_of,
    source,
    target,
)
from tests.support.database import Database
from tests.support.hooks import Hooks
from tests.support.pair import emptied
from tests.support.task_runners import Threads
from tests.support.wait import until
from tests.support.writer import Writer, create_tables, fill

__all__ = ["servers", "source", "target"]


@pytest.mark.turns
@pytest.mark.parametrize("position", ["auto", "watermark"])
def test_a_snapshot_under_writes_and_its_tail_give_the_source(
    source: Database, target: Database, tmp_path: Path, position: str
) -> None:
    if source.flavor == "mysql" and position == "auto":
        pytest.skip("the same as watermark on MySQL")
    shards = shards_of(source, 2)
    create_tables(shards)
    for shard in shards:
        fill(shard, 6000, seed=3)
    source.execute("ANALYZE TABLE shard_1.t_1, shard_1.t_2")
    config = merging(target, threads=3, chunk_rows=250, position=position)
    with Rig(source, target, tmp_path, config) as rig:
        with Writer(shards, seed=5, threads=2, pause_seconds=0.002) as writer:
            unit = rig.unit()
            outcome = unit.run(StopSignal())
            during = writer.counts.changes
            until(lambda: writer.counts.changes > during + 50, "more changes after the snapshot")
        assert outcome == Finished()
        status = unit.status()
        assert status.progress == "100.00 %"
        assert status.finished_chunks == status.total_chunks > 40
        assert status.finished_rows == status.total_rows
        assert rig.follow() > 50
    assert_merged(source, target, shards)


@pytest.mark.parametrize("changed", ["keyed", "no_key", "other"])
def test_changes_while_a_snapshot_is_opened_are_neither_lost_nor_repeated(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """Each time after a snapshot is opened a row is added: its position is not the end of the binlog."""
    if source.flavor == "mysql":
        pytest.skip("a snapshot's position is not used on MySQL")
    make_tables(
        source,
        "CREATE TABLE shard.keyed (k INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "INSERT INTO shard.keyed SELECT seq, seq FROM seq_1_to_300",
        "CREATE TABLE shard.no_key (v INT)",
        "INSERT INTO shard.no_key SELECT seq FROM seq_1_to_50",
        "CREATE DATABASE other",
        "CREATE TABLE other.other (v INT)",
    )
    schema = "other" if changed == "other" else "shard"
    added: list[int] = []

    def end_after_a_change(session: Session, info: ServerInfo) -> SourcePosition:
        added.append(len(added))
        source.execute(f"INSERT INTO {schema}.{changed} (v) VALUES ({1000 + len(added)})")
        return end_of_binlog(session, info)

    with Rig(source, target, tmp_path, subtask_config(target, threads=1, chunk_rows=100)) as rig:
        with monkeypatch.context() as patch:
            patch.setattr(watermarks, "end_of_binlog", end_after_a_change)
            assert rig.run() == Finished()
        assert len(added) >= 4 * 4  # several openings for each chunk
        followed = rig.follow()
        assert (followed == 0) == (changed == "other")
    for name in ("keyed", "no_key"):
        statement = f"SELECT * FROM shard.{name} ORDER BY v"
        assert target.query(statement) == source.query(statement)


def test_string_keys_of_any_spelling_survive_snapshot_and_hand_over(
    source: Database, target: Database, tmp_path: Path
) -> None:
    make_table(source, "case_insensitive")
    hooks = Hooks(tmp_path / "hooks")
    config = subtask_config(target, threads=1, chunk_rows=100, position="watermark")
    with Rig(source, target, tmp_path, config) as rig, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
        changes = iter(
            (
                # Changes between low watermark and SELECT, then between SELECT and high watermark, then after both.
                "UPDATE shard.t SET k = UPPER(k), v = v + 1000 WHERE v BETWEEN 10 AND 30",
                "UPDATE shard.t SET k = CONCAT('zz ', k) WHERE v BETWEEN 100 AND 120",
                "UPDATE shard.t SET k = LOWER(k), v = v + 1000 WHERE v BETWEEN 200 AND 230",
                "UPDATE shard.t SET k = CONCAT('😀a', v) WHERE v BETWEEN 300 AND 330",
                "DELETE FROM shard.t WHERE v BETWEEN 400 AND 420",
                "INSERT INTO shard.t VALUES ('NAME 401', 7), ('name 402  ', 8), ('😀', 9)",
                "REPLACE INTO shard.t VALUES ('NAME 500', 7), ('name 777  ', 8)",
                "UPDATE shard.t SET k = CONCAT('M', k) WHERE v BETWEEN 600 AND 640",
            )
        )
        hooks.hold("snapshot.after_low")
        hooks.hold("snapshot.after_select")
        spark = Threads()
        unit = rig.unit(spark)
        outcome: list[object] = []
        run = threading.Thread(target=lambda: outcome.append(unit.run(StopSignal())))
        run.start()
        for chunk in range(4):
            for moment, following in (
                ("snapshot.after_low", "snapshot.after_select"),
                ("snapshot.after_select", "snapshot.after_low"),
            ):
                hooks.reached(moment)
                source.execute(next(changes))
                if chunk < 3 or moment == "snapshot.after_low":
                    hooks.hold(following)
                hooks.release(moment)
        hooks.release_all()
        run.join(300)
        assert outcome == [Finished()]
        source.execute(
            "UPDATE shard.t SET k = CONCAT(k, ' '), v = v + 1 WHERE v < 50", "DELETE FROM shard.t WHERE v > 980"
        )
        assert rig.follow() > 0
    wanted = source.query("SELECT HEX(k), v FROM shard.t ORDER BY 1, 2")
    assert target.query("SELECT HEX(k), v FROM shard.t ORDER BY 1, 2") == wanted


def test_tables_without_key_engine_versions_or_rows(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(
        source,
        "CREATE TABLE shard.no_key (a INT, b VARCHAR(40))",
        "INSERT INTO shard.no_key SELECT seq % 10, IF(seq % 3, 'x', NULL) FROM seq_1_to_5000",
        "CREATE TABLE shard.flat (k INT PRIMARY KEY, b VARCHAR(40)) ENGINE=Aria",
        "INSERT INTO shard.flat SELECT seq, LEFT(SHA2(seq, 256), 32) FROM seq_1_to_3000",
        "CREATE TABLE shard.empty (k INT PRIMARY KEY, b VARCHAR(20))",
    )
    config = subtask_config(target, threads=2, chunk_rows=100, position="watermark")
    with Rig(source, target, tmp_path, config) as rig:
        assert rig.run() == Finished()
        source.execute(
            "INSERT INTO shard.no_key VALUES (1, 'late'), (1, 'late')",
            "DELETE FROM shard.no_key WHERE a = 3 LIMIT 7",
            "UPDATE shard.flat SET b = 'changed' WHERE k < 10",
            "INSERT INTO shard.empty VALUES (1, 'first')",
        )
        assert rig.follow() == 2 + 7 + 9 + 1
    for name, order in (("no_key", "a, b"), ("flat", "k"), ("empty", "k")):
        statement = f"SELECT * FROM shard.{name} ORDER BY {order}"
        assert target.query(statement) == source.query(statement)


# --- errors that stop


def test_a_collision_of_two_shards_names_table_and_key(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(
        source,
        "CREATE TABLE shard_1.t_1 (id BIGINT PRIMARY KEY, v INT)",
        "CREATE TABLE shard_1.t_2 (id BIGINT PRIMARY KEY, v INT)",
        "INSERT INTO shard_1.t_1 SELECT seq, seq FROM seq_1_to_500",
        "INSERT INTO shard_1.t_2 SELECT seq + 1000, seq FROM seq_1_to_500",
        "INSERT INTO shard_1.t_2 VALUES (77, 1)",
        schema="shard_1",
    )
    config = merging(target, threads=1, chunk_rows=100)
    del config.column_mappings[:]
    with Rig(source, target, tmp_path, config) as rig:
        outcome = rig.run()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.COLLISION
    assert not outcome.error.spec.retryable
    values = outcome.error.values
    assert (values["schema"], values["table"], values["key"]) == ("shard_1", "t_2", "77")
    assert (values["target_schema"], values["target_table"]) == ("merged", "t")
    # The rows of the first shard are unchanged, and the refused chunk was rolled back completely.
    assert target.query("SELECT v FROM merged.t WHERE id = 77") == [(77,)]
    assert count_rows(target, "merged.t") % 100 == 0


def test_a_collision_in_a_further_unique_key_is_reported(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(
        source,
        "CREATE TABLE shard_1.t_1 (id BIGINT PRIMARY KEY, mail VARCHAR(40) NOT NULL UNIQUE)",
        "CREATE TABLE shard_1.t_2 (id BIGINT PRIMARY KEY, mail VARCHAR(40) NOT NULL UNIQUE)",
        "INSERT INTO shard_1.t_1 VALUES (1, 'a@x'), (2, 'b@x')",
        "INSERT INTO shard_1.t_2 VALUES (1, 'c@x'), (2, 'B@X')",
        schema="shard_1",
    )
    with Rig(source, target, tmp_path, merging(target, threads=1)) as rig:
        outcome = rig.run()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.COLLISION
    assert "mail" in outcome.error.message


@pytest.mark.turns
@pytest.mark.parametrize(("key", "chunk_rows"), [("BIGINT", 500_000), ("VARCHAR(20)", 400)])
def test_a_table_of_a_billion_rows_begins_at_once(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, chunk_rows: int
) -> None:
    """Its first chunk is at the target before others are planned; the next start continues from there."""
    make_tables(
        source,
        f"CREATE TABLE shard.t (k {key} PRIMARY KEY, v INT)",
        "INSERT INTO shard.t SELECT seq * 1000000, seq FROM seq_1_to_1000",
    )
    hooks, stop = Hooks(tmp_path / "hooks"), StopSignal()
    monkeypatch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
    with Rig(source, target, tmp_path, subtask_config(target, threads=2, chunk_rows=chunk_rows)) as rig:
        # The estimates of a server with so many rows: the range of its keys is that large.
        rig.tables = tuple(replace(table, row_estimate=10**9, byte_estimate=50 * 10**9) for table in rig.tables)
        hooks.hold("snapshot.planned")
        unit = rig.unit()
        run = threading.Thread(target=unit.run, args=(stop,))
        run.start()
        try:
            hooks.reached("snapshot.planned")
            until(lambda: bool(loaded_chunks(target)), "a chunk is loaded")
            assert target.query("SELECT COUNT(*) FROM dm_meta.snapshot_chunk") == [(1,)]
            assert not unit.status().plan_complete
        finally:
            stop.set()
            hooks.release_all()
            run.join(300)
        assert rig.run() == Finished()
    assert target.query("SELECT * FROM shard.t ORDER BY v") == source.query("SELECT * FROM shard.t ORDER BY v")


def test_a_table_altered_without_a_trace_in_the_binlog_stops_the_snapshot(
    source: Database, target: Database, tmp_path: Path
) -> None:
    make_tables(source, "CREATE TABLE shard.t (k INT PRIMARY KEY, v INT)", "INSERT INTO shard.t VALUES (1, 2)")
    with Rig(source, target, tmp_path, subtask_config(target, threads=1)) as rig:
        source.execute("SET SESSION sql_log_bin = 0", "ALTER TABLE shard.t MODIFY v BIGINT")
        unit = rig.unit()
        outcome = unit.run(StopSignal())
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.snapshot.STRUCTURE_CHANGED
        assert "bigint" in outcome.error.message
        source.execute("SET SESSION sql_log_bin = 0", "DROP TABLE shard.t")
        gone = unit.run(StopSignal())
        assert isinstance(gone, Failed)
        assert gone.error.spec is errors.snapshot.TABLE_GONE
        source.execute("SET SESSION sql_log_bin = 1")


def test_a_row_larger_than_the_targets_packet_stops(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(
        source,
        "CREATE TABLE shard.t (k INT PRIMARY KEY, v LONGBLOB)",
        "INSERT INTO shard.t SELECT seq, REPEAT('x', 1000) FROM seq_1_to_300",
        "INSERT INTO shard.t VALUES (301, REPEAT('y', 3000000))",
    )
    target.execute("SET GLOBAL max_allowed_packet = 4194304")
    try:
        with Rig(source, target, tmp_path, subtask_config(target, threads=1)) as rig:
            outcome = rig.run()
            assert isinstance(outcome, Failed)
            assert outcome.error.spec is errors.snapshot.ROW_TOO_LARGE
            assert outcome.error.values["key"] == "301"
            target.execute("SET GLOBAL max_allowed_packet = DEFAULT")
            assert rig.run() == Finished()
    finally:
        target.execute("SET GLOBAL max_allowed_packet = DEFAULT")
    assert target.query("SELECT SUM(LENGTH(v)) FROM shard.t") == source.query("SELECT SUM(LENGTH(v)) FROM shard.t")


def test_a_bug_in_one_reader_ends_the_others(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(source, 3000)
    broken, told = threading.Event(), threading.Event()
    transaction, failed = ChunkLoader.transaction, ReaderTask.failed
    begun = itertools.count()

    def first_fails(self: ChunkLoader, plan: TablePlan, chunk: Chunk) -> ChunkTransaction:
        if not broken.is_set():
            broken.set()
            raise ZeroDivisionError("by nought")
        if next(begun) == 100:
            told.wait(300)  # however long the failing reader needs to report it
        return transaction(self, plan, chunk)

    def tells(self: ReaderTask, index: int, error: ShardmergeError) -> None:
        failed(self, index, error)
        told.set()

    monkeypatch.setattr(ChunkLoader, "transaction", first_fails)
    monkeypatch.setattr(ReaderTask, "failed", tells)
    with Rig(source, target, tmp_path, merging(target, threads=2, chunk_rows=20)) as rig:
        outcome = rig.run()
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.worker.INTERNAL
        assert re.fullmatch(
            rf"unexpected ZeroDivisionError in Spark task \d of snapshot {TASK} {SOURCE}: by nought",
            outcome.error.message,
        )
        assert len(loaded_chunks(target)) < 200, "the other reader would have loaded all but one of 300 chunks"


class _Waiting(TaskBody):
    """Holds its slot until ``over`` is set."""

    def __init__(self, over: threading.Event) -> None:
        self._over = over

    def __call__(self, index: int) -> TaskOutcome:
        self._over.wait(300)
        return TaskDone()


@pytest.mark.turns
def test_a_copy_begins_with_the_free_slots_and_takes_those_that_become_free(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tables(
        source,
        "CREATE TABLE t (k INT PRIMARY KEY, v INT)",
        "INSERT INTO t SELECT seq, seq * 7 FROM seq_1_to_2000",
        "ANALYZE TABLE t",
    )
    hooks, runner, over = Hooks(tmp_path / "hooks"), Threads(6), threading.Event()
    monkeypatch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
    hooks.hold("snapshot.before_commit")
    with Rig(source, target, tmp_path, subtask_config(target, threads=4, chunk_rows=50)) as rig:
        other = threading.Thread(target=runner.run, args=("another task", 5, _Waiting(over), StopSignal()))
        other.start()
        until(lambda: runner.free_slots == 1, "the other task has its slots")
        unit = rig.unit(runner)
        outcomes: list[Outcome] = []
        copying = threading.Thread(target=lambda: outcomes.append(unit.run(StopSignal())))
        copying.start()
        until(lambda: hooks.standing("snapshot.before_commit") or outcomes, "a reader copies, or the copy fails")
        if outcomes:
            over.set()
        assert not outcomes
        assert unit.activity() == "3 of 4 chunk readers wait for a free Spark slot; the others copy"
        over.set()
        other.join()
        until(lambda: runner.free_slots == 2, "the copy has all its readers")
        assert not unit.activity()
        hooks.release("snapshot.before_commit")
        copying.join()
        assert outcomes == [Finished()]
        assert runner.free_slots == 6
    for statement in ("SELECT COUNT(*), SUM(k), SUM(v) FROM shard.t", "SELECT * FROM shard.t ORDER BY k"):
        assert target.query(statement) == source.query(statement)


def test_a_copy_leaves_the_slots_that_are_promised_to_others_and_needs_one(
    source: Database, target: Database, tmp_path: Path
) -> None:
    make_table(source, "composite")
    begun: list[int] = []

    class Counted(Threads):
        def _run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
            begun.append(count)
            return super()._run(name, count, body, stop)

    config = subtask_config(target, threads=4, chunk_rows=100)
    with Rig(source, target, tmp_path, config) as rig:
        context = replace(rig.context(Counted(4)), promised_slots=lambda: 2)
        positions = dict.fromkeys((plan.shard for plan in rig.plans), rig.start)
        assert SnapshotUnit(context, rig.plans, positions).run(StopSignal()) == Finished()
        assert begun[0] == 2
        outcome = rig.unit(Threads(0)).run(StopSignal())
        assert outcome == Finished(), "everything is copied: no reader is needed"
    with Rig(source, emptied(target), tmp_path / "none", config) as rig:
        outcome = rig.unit(Threads(0)).run(StopSignal())
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.worker.NO_SLOTS
