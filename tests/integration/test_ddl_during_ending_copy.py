"""Tests statements during the copy of a task that ends: with task-mode full, and at a configured end."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, worker_pb2
from shardmerge.proto.config.position import stop_at
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.replicate.join.unit import JoiningUnit
from shardmerge.worker.target.tables import deferred_index
from shardmerge.worker.unit.contract import Finished
from tests.integration.interrupted_copy import (
    STATEMENTS,
    Pause,
    config_of,
    interrupted_run,
    loaded,
    make,
    same,
    writes,
)
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_tables import servers, source, target
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["servers", "source", "target"]


def _full(target: Database) -> config_pb2.SubTaskConfig:
    config = config_of(target)
    config.mode = config_pb2.TASK_MODE_FULL
    return config


def _ended(run: Run, target: Database) -> None:
    """Check that a full task has ended: it reports all rows, and no table is away."""
    assert run.join() == Finished()
    status = run.unit.status() if run.unit is not None else None
    assert isinstance(status, worker_pb2.LoadStatus)
    assert status.progress == "100.00 %"
    assert all(table.finished_chunks == table.total_chunks for table in status.tables)
    assert target.query("SELECT phase, joining FROM dm_meta.subtask") == [("finished", "")]
    for record in ("parked_table", "snapshot_interrupted", "join_checkpoint"):
        assert target.query(f"SELECT COUNT(*) FROM dm_meta.{record}") == [(0,)], record


def _skip(target: Database) -> StoredOverride:
    """Return the override that skips the statement at which the only parked table is parked."""
    [(parked,)] = target.query("SELECT parked FROM dm_meta.parked_table")
    place = json.loads(str(parked))["place"]["position"]
    return StoredOverride(kind=OverrideKind.SKIP, file=place["file"], pos=place["pos"])


@pytest.mark.parametrize("name", ["index", "truncate", "several", "drop table"])
def test_a_full_task_copies_the_rest_and_ends(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make(source)
    pause = Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _full(target)) as rig:
        run = rig.begin(rig.config)
        pause.reached()
        before = loaded(target)
        dropped = name == "drop table"
        source.execute(*writes(1), *(("DROP TABLE shard.t",) if dropped else (*STATEMENTS[name], *writes(2))))
        pause.release()
        _ended(run, target)
        assert pause.seen["whole.aligned"] >= 1, "its stream has run"
        if dropped:
            same(source, target, ("shard.u",))
            assert target.query("SHOW TABLES FROM shard LIKE 't'") == []
        else:
            same(source, target)
            assert before < loaded(target), "no finished chunk is copied again"
        source.execute("UPDATE shard.u SET v = -5")
        _ended(rig.begin(rig.config), target)
        assert target.query("SELECT COUNT(*) FROM shard.u WHERE v = -5") == [(0,)]


@pytest.mark.parametrize("moment", ["handover", "copy.completed", "join.adopted", "whole.aligned", "full.finishing"])
def test_a_full_task_ends_after_a_crash(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    make(source, "id INT PRIMARY KEY, v INT, w VARCHAR(20), KEY by_v (v)")
    monkeypatch.setattr(deferred_index, "DEFER_FROM_ROWS", 10)
    pause = Pause(monkeypatch, "snapshot.before_commit", 4, crash=moment)
    config = _full(target)
    config.load.defer_indexes = True
    with LaneRig(source, target, tmp_path, config) as rig:
        run = interrupted_run(rig, pause, source, (*STATEMENTS["several"], *writes(2)))
        assert pause.crashed.wait(100)
        run.stop()
        source.execute(*writes(3))
        _ended(rig.begin(config), target)
        same(source, target, ("shard.t",) if moment == "full.finishing" else ("shard.t", "shard.u"))
        assert {row[2] for row in target.query("SHOW INDEX FROM shard.t")} == {"PRIMARY", "by_v"}


def test_a_full_task_ends_while_rows_and_structures_change(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(source)
    pause = Pause(monkeypatch, "snapshot.before_commit", 4)
    stop = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            source.execute(f"UPDATE shard.u SET v = {number} WHERE id = {number % 100}")

    config = _full(target)
    config.shard_mode = config_pb2.SHARD_MODE_OPTIMISTIC
    with LaneRig(source, target, tmp_path, config) as rig:
        run = interrupted_run(rig, pause, source, STATEMENTS["add"])
        writer = threading.Thread(target=write)
        writer.start()
        try:
            _ended(run, target)
        finally:
            stop.set()
            writer.join()
        same(source, target, ("shard.t",))


def test_a_lock_keeps_a_full_task_running(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement at the place where the task would end counts."""
    make(source)
    pause = Pause(monkeypatch, "snapshot.before_commit", 4)
    config = _full(target)
    config.shard_mode = config_pb2.SHARD_MODE_PESSIMISTIC
    with LaneRig(source, target, tmp_path, config) as rig:
        run = interrupted_run(rig, pause, source, ("TRUNCATE TABLE shard.t",), hold="whole.aligning")
        pause.reached()
        source.execute("ALTER TABLE shard.u ADD INDEX i (v)", "UPDATE shard.u SET v = -5")
        # The task ends at the end of the relay log.
        rig.until_fetched()
        pause.release()

        def waits_for() -> str:
            assert not run.ended, run.join()
            return run.unit.activity() if isinstance(run.unit, JoiningUnit) else ""

        until(lambda: "1 shard table(s) are parked" in waits_for(), "the lock waits for other sources")
        until(lambda: pause.seen["whole.aligned"] == 1, "all streams are at the end")
        assert "task-mode full" in waits_for()
        run.stop()
        _ended(rig.begin(config, ops=(_skip(target),)), target)
        same(source, target)


def test_the_status_of_a_full_task_whose_copy_was_interrupted(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(source)
    pause = Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _full(target)) as rig:
        run = interrupted_run(rig, pause, source, ("ALTER TABLE shard.t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)",))

        def error() -> str:
            assert not run.ended, run.join()
            failed = run.unit.copy_status() if isinstance(run.unit, JoiningUnit) else ()
            return "".join(status.error.message for status in failed)

        assert "changed the key" in until(error, "the rest of the copy has failed")
        unit = run.unit
        assert isinstance(unit, JoiningUnit)
        assert "task-mode full" in unit.activity()
        assert unit.lowest() is not None, "the relay log is held"
        assert not unit.status().synced
        source.execute("UPDATE shard.u SET v = -5")
        until(lambda: target.query("SELECT COUNT(*) FROM shard.u WHERE v = -5") == [(100,)], "the other table goes on")
        assert not run.ended
        run.stop()


BYTES = 300_000
"""From the start to the configured end: more than a test writes before it lets the source pass the end."""


def _ending(source: Database, target: Database) -> config_pb2.SubTaskConfig:
    """Return a configuration with an end that the source has yet to reach."""
    config = config_of(target)
    file, position = source.binlog_end()
    config.stop_at.CopyFrom(stop_at(f"{file}:{position + BYTES}"))
    return config


def _pass_end(source: Database, config: config_pb2.SubTaskConfig) -> dict[str, list[tuple[object, ...]]]:
    """Let the source write beyond the end; return its rows at the end."""
    end = config.stop_at.position
    rows: dict[str, list[tuple[object, ...]]] = {}
    for number in itertools.count():
        file, position = source.binlog_end()
        assert file == end.file
        if position > end.pos:
            break
        rows = {table: source.query(f"SELECT * FROM {table} ORDER BY id") for table in ("shard.t", "shard.u")}
        source.execute(
            f"UPDATE shard.t SET v = {number}, x = {number} WHERE id BETWEEN 300 AND 700",
            f"UPDATE shard.u SET v = {number}",
        )
    source.execute("DELETE FROM shard.u WHERE id < 50", "UPDATE shard.t SET v = -7")
    return rows


def _is_at(target: Database, rows: dict[str, list[tuple[object, ...]]]) -> None:
    for table, wanted in rows.items():
        assert target.query(f"SELECT * FROM {table} ORDER BY id") == wanted, table


@pytest.mark.parametrize("moment", ["", "copy.completed", "replay.begun", "end.before_adopting"])
def test_a_task_ends_when_all_tables_are_at_the_end(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The source passes the end after the rest was copied. A run may crash before the table is adopted there."""
    make(source)
    crash = moment if moment == "end.before_adopting" else ""
    pause = Pause(monkeypatch, "snapshot.before_commit", 4, crash)
    config = _ending(source, target)
    with LaneRig(source, target, tmp_path, config) as rig:
        hold = "copy.completed" if crash else moment
        run = interrupted_run(rig, pause, source, (*STATEMENTS["add"], *writes(2)), hold)
        if hold:
            pause.reached()
        else:
            run.until_joined(target)
        source.execute(*writes(3))
        rows = _pass_end(source, config)
        if moment:
            until(lambda: target.query("SELECT * FROM shard.u ORDER BY id") == rows["shard.u"], "the lanes end", 60)
            pause.release()
        if crash:
            assert pause.crashed.wait(100)
            run.stop()
            run = rig.begin(config)
        assert run.join() == Finished()
        _is_at(target, rows)
        status = run.unit.status() if run.unit is not None else None
        assert isinstance(status, worker_pb2.SyncStatus)
        assert status.stop_at == f"{config.stop_at.position.file}:{config.stop_at.position.pos}"
        config.ClearField("stop_at")
        again = rig.begin(config)
        again.until_joined(target)
        again.stop()
        same(source, target)


@pytest.mark.parametrize("way_out", ["none", "later"])
def test_a_rest_that_would_be_copied_after_the_end(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way_out: str
) -> None:
    make(source)
    pause = Pause(monkeypatch, "snapshot.before_commit", 4)
    config = _ending(source, target)
    with LaneRig(source, target, tmp_path, config) as rig:
        run = interrupted_run(rig, pause, source, STATEMENTS["add"], hold="snapshot.before_commit")
        pause.reached()
        before = loaded(target)
        rows = _pass_end(source, config)
        pause.release()

        def failure() -> str:
            assert not run.ended, run.join()
            failed = run.unit.copy_status() if isinstance(run.unit, JoiningUnit) else ()
            return "".join(status.error.name for status in failed)

        until(lambda: failure() == "interrupted-copy-of-ending-task", "the rest cannot be copied", 60)
        until(lambda: target.query("SELECT * FROM shard.u ORDER BY id") == rows["shard.u"], "the lanes end", 60)
        assert target.query("SELECT COUNT(*) FROM shard.t WHERE v = -7") == [(0,)], "nothing after the end"
        run.stop()
        # The way out, as it is printed: a later end, or none.
        config.ClearField("stop_at")
        if way_out == "later":
            file, position = source.binlog_end()
            config.stop_at.CopyFrom(stop_at(f"{file}:{position + BYTES}"))
        again = rig.begin(config)
        again.until_joined(target)
        same(source, target)
        assert before < loaded(target), "no finished chunk is copied again"
        if way_out == "later":
            rows = _pass_end(source, config)
            assert again.join() == Finished()
            _is_at(target, rows)
        again.stop()


def test_a_task_ends_when_a_parked_table_is_at_the_end(source: Database, target: Database, tmp_path: Path) -> None:
    make(source)
    source.execute("ALTER TABLE shard.t ADD COLUMN x INT")
    config = _ending(source, target)
    config.shard_mode = config_pb2.SHARD_MODE_PESSIMISTIC
    with LaneRig(source, target, tmp_path, config) as rig:
        run = rig.begin(config)
        run.until_joined(target)
        source.execute("ALTER TABLE shard.u ADD INDEX i (v)", "UPDATE shard.u SET v = -5")
        rows = _pass_end(source, config)

        def waits_for() -> str:
            assert not run.ended, run.join()
            return run.unit.activity() if isinstance(run.unit, JoiningUnit) else ""

        # The lock agent reports the parked table in its own time, which may be after the lanes have ended.
        reasons = ("all lanes are at the end", "1 shard table(s) are parked")
        until(lambda: all(reason in waits_for() for reason in reasons), "the lanes end, and the table is parked", 60)
        assert target.query("SELECT COUNT(*) FROM shard.u WHERE v < 0") == [(0,)]
        run.stop()
        assert rig.begin(config, ops=(_skip(target),)).join() == Finished()
        _is_at(target, rows)
