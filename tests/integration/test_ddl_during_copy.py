"""Tests statements on a table while its history is copied: finished chunks are kept, the rest is copied after them."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors, failpoints, worker_pb2
from shardmerge.proto.state_pb2 import BinlogOp
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.replicate.join.unit import JoiningUnit
from shardmerge.worker.target.tables import deferred_index
from shardmerge.worker.target.tables.index_adder import IndexAdder
from shardmerge.worker.unit.contract import Failed, Finished
from tests.integration.lane_rig import LaneRig, Run, has_joined
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

ROWS = 1000
CHUNKS = 10


def _make(source: Database, columns: str = "id INT PRIMARY KEY, v INT, w VARCHAR(20)") -> None:
    make_tables(
        source,
        f"CREATE TABLE t ({columns}) ENGINE=InnoDB",
        f"INSERT INTO t (id, v, w) SELECT seq, seq, CONCAT('text ', seq) FROM seq_1_to_{ROWS}",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT) ENGINE=InnoDB",
        "INSERT INTO u SELECT seq, seq FROM seq_1_to_100",
        "ANALYZE TABLE t, u",
    )


def _config(target: Database, position: str) -> config_pb2.SubTaskConfig:
    config = subtask_config(target, threads=1, chunk_rows=ROWS // CHUNKS, position=position)
    config.replicate.lanes = 2
    return config


def _joined(run: Run, target: Database) -> None:
    """Wait until all tables are in the subtask's own stream, and everything is applied."""

    def done() -> bool:
        assert not run.ended, run.join()
        return has_joined(run, target)

    until(done, "all tables are copied and joined", 120)


def _same(source: Database, target: Database, tables: tuple[str, ...] = ("shard.t", "shard.u")) -> None:
    for table in tables:
        wanted = source.query(f"SELECT * FROM {table} ORDER BY id")
        found = target.query(f"SELECT * FROM {table} ORDER BY id")
        assert found == wanted, table


def _writes(number: int) -> tuple[str, ...]:
    """Return changes in copied and uncopied chunks, and rows that move between them."""
    return (
        f"INSERT INTO shard.t (id, v) VALUES ({ROWS + number}, {number}), ({-number}, {number})",
        f"UPDATE shard.t SET v = v + {number} WHERE id % 7 = {number % 7}",
        f"DELETE FROM shard.t WHERE id % 101 = {number}",
        f"UPDATE shard.t SET id = id + 5000 WHERE id = {20 + number}",
        f"UPDATE shard.t SET id = {-1000 - number} WHERE id = {ROWS - 20 - number}",
        f"UPDATE shard.u SET v = v + 1 WHERE id % 5 = {number % 5}",
    )


def _loaded(target: Database) -> set[tuple[object, ...]]:
    return set(
        target.query("SELECT number, source_file, source_pos FROM dm_meta.snapshot_chunk WHERE state = 1 AND shard = 0")
    )


class _Crash(Exception):
    """The program ends at a moment."""


class _Pause:
    """Holds the copy at the n-th time that it reaches a moment; lets the first thread fail that reaches another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, moment: str, number: int, crash: str = "") -> None:
        self._moment, self._left, self._crash = moment, number, crash
        self.crashed = threading.Event()
        self._reached, self._go_on = threading.Event(), threading.Event()
        self.seen = Counter[str]()
        monkeypatch.setattr(failpoints, "hit", self._hit)

    def _hit(self, moment: str) -> None:
        self.seen[moment] += 1
        if moment == self._crash and self._go_on.is_set() and not self.crashed.is_set():
            self.crashed.set()
            raise _Crash(moment)
        if moment == self._moment:
            self._left -= 1
            if self._left == 0:
                self._reached.set()
                assert self._go_on.wait(300)

    def reached(self) -> None:
        assert self._reached.wait(300)

    def release(self) -> None:
        self._go_on.set()

    def hold_next(self, moment: str) -> None:
        """Let the copy continue; hold the first thread that reaches ``moment``."""
        before, self._go_on, self._reached = self._go_on, threading.Event(), threading.Event()
        self._moment, self._left = moment, 1
        before.set()


STATEMENTS = {
    "add": ("ALTER TABLE shard.t ADD COLUMN x INT NOT NULL DEFAULT 3", "UPDATE shard.t SET x = id WHERE id % 3 = 0"),
    "drop": ("ALTER TABLE shard.t DROP COLUMN w",),
    "modify": ("ALTER TABLE shard.t MODIFY v BIGINT", "UPDATE shard.t SET v = 1 << 40 WHERE id % 50 = 0"),
    "change": (
        "ALTER TABLE shard.t CHANGE v z INT",
        "UPDATE shard.t SET z = z + 1",
        "ALTER TABLE shard.t CHANGE z v INT",
    ),
    "index": ("CREATE INDEX i ON shard.t (v)",),
    "truncate": ("TRUNCATE TABLE shard.t", "INSERT INTO shard.t (id, v) VALUES (5, 5), (500, 6), (5000, 7)"),
    "key type": ("ALTER TABLE shard.t MODIFY id BIGINT",),
    "several": (
        "ALTER TABLE shard.t ADD COLUMN x INT",
        "UPDATE shard.t SET x = 1 WHERE id % 2 = 0",
        "ALTER TABLE shard.t ADD COLUMN y INT, DROP COLUMN w",
        "UPDATE shard.t SET y = 2 WHERE id % 3 = 0",
        "ALTER TABLE shard.t DROP COLUMN x",
    ),
}


@pytest.mark.parametrize("position", ["auto", "watermark"])
@pytest.mark.parametrize("name", list(STATEMENTS))
def test_the_rest_is_copied_after_the_statement(
    source: Database,
    target: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    position: str,
) -> None:
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _config(target, position)) as rig:
        run = rig.begin(rig.config)
        pause.reached()
        before = _loaded(target)
        source.execute(*_writes(1), *STATEMENTS[name], *_writes(2))
        pause.release()
        source.execute(*_writes(3))
        _joined(run, target)
        source.execute(*_writes(4))
        _joined(run, target)
        run.stop()
        _same(source, target)
        after = _loaded(target)
        assert before
        assert before <= after, "no finished chunk is copied again"
        [(chunks,)] = target.query("SELECT COUNT(*) FROM dm_meta.snapshot_chunk WHERE shard = 0")
        assert len(after) == chunks
        assert pause.seen["copy.completed"] >= 1, "the copy was interrupted"


ONLINE = {
    "gh-ost": (
        "CREATE TABLE shard._t_gho LIKE shard.t",
        "ALTER TABLE shard._t_gho ADD COLUMN x INT NOT NULL DEFAULT 8",
        "INSERT INTO shard._t_gho SELECT *, 8 FROM shard.t",
        "RENAME TABLE shard.t TO shard._t_del, shard._t_gho TO shard.t",
        "DROP TABLE shard._t_del",
    ),
    "drop and create": (
        "DROP TABLE shard.t",
        "CREATE TABLE shard.t (id INT PRIMARY KEY, v INT, w VARCHAR(20), x INT)",
        "INSERT INTO shard.t VALUES (-50, 1, 'new', 2), (50, 1, 'new', 2), (700, 1, 'new', 2)",
    ),
    "drop database": (
        "DROP DATABASE shard",
        "CREATE DATABASE shard",
        "CREATE TABLE shard.t (id INT PRIMARY KEY, v INT, w VARCHAR(20))",
        "CREATE TABLE shard.u (id INT PRIMARY KEY, v INT)",
    ),
}


def _interrupted_run(rig: LaneRig, pause: _Pause, source: Database, statements: tuple[str, ...]) -> Run:
    """Start a run and execute ``statements`` while it copies the fourth chunk."""
    run = rig.begin(rig.config)
    pause.reached()
    source.execute(*_writes(1), *statements)
    pause.release()
    return run


@pytest.mark.parametrize("name", list(ONLINE))
def test_a_table_that_is_replaced(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    config = _config(target, "auto")
    if name == "gh-ost":
        config.online_ddl.shadow_tables.append("^_(.+)_gho$")
        config.online_ddl.trash_tables.append("^_(.+)_del$")
    else:
        config.block_allow_list.do_tables.extend(
            config_pb2.TableName(schema="~^shard", table=table) for table in ("t", "u")
        )
    with LaneRig(source, target, tmp_path, config) as rig:
        run = _interrupted_run(rig, pause, source, ONLINE[name])
        source.execute(*_writes(2))
        _joined(run, target)
        run.stop()
        _same(source, target)


KEYS = {
    "composite": "id INT, v INT, w VARCHAR(20), PRIMARY KEY (id, v)",
    "text": "id VARCHAR(30) PRIMARY KEY, v INT, w VARCHAR(20)",
    "two unique keys": "id INT PRIMARY KEY, v INT, w VARCHAR(20), g INT AS (id * 2) STORED UNIQUE",
    "none": "id INT, v INT, w VARCHAR(20)",
}


@pytest.mark.parametrize("name", list(KEYS))
def test_every_kind_of_key(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _make(source, KEYS[name])
    pause = _Pause(monkeypatch, "snapshot.before_commit", 1 if name in ("none", "two unique keys") else 4)
    with LaneRig(source, target, tmp_path, _config(target, "auto")) as rig:
        statements = () if name == "none" else _writes(2)
        run = _interrupted_run(rig, pause, source, (*STATEMENTS["several"], *statements))
        _joined(run, target)
        source.execute(*_writes(3))
        _joined(run, target)
        run.stop()
        _same(source, target)


MOMENTS = (
    "handover",
    "ddl.before",
    "ddl.before_passing",
    "ddl.passed",
    "copy.before_completed",
    "copy.completed",
    "snapshot.after_commit",
    "replay.beginning",
    "replay.begun",
    "join.before_adopting",
    "join.adopted",
)


@pytest.mark.parametrize("shard_mode", ["none", "optimistic"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_at_any_moment(
    source: Database,
    target: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    shard_mode: str,
) -> None:
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4, crash=moment)
    config = _config(target, "auto")
    if shard_mode == "optimistic":
        config.shard_mode = config_pb2.SHARD_MODE_OPTIMISTIC
    with LaneRig(source, target, tmp_path, config) as rig:
        run = _interrupted_run(rig, pause, source, (*STATEMENTS["several"], *_writes(2)))
        assert pause.crashed.wait(100)
        run.stop()
        source.execute(*_writes(3))
        again = rig.begin(rig.config)
        _joined(again, target)
        again.stop()
        names = "id, v, y"  # optimistic: the target keeps a column until all shard tables have dropped it
        wanted = source.query(f"SELECT {names} FROM shard.t ORDER BY id")
        assert target.query(f"SELECT {names} FROM shard.t ORDER BY id") == wanted
        _same(source, target, ("shard.u",))


def _add_nothing(adder: IndexAdder, stop: StopSignal) -> None:
    pass


@pytest.mark.parametrize("shard_mode", ["none", "optimistic"])
def test_deferred_indexes_are_added_after_a_crash(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_mode: str
) -> None:
    """The only table of a target is away from the stream when the run begins that adds the indexes."""
    _make(source, "id INT PRIMARY KEY, v INT, w VARCHAR(20), KEY by_v (v), KEY by_w (w)")
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4, crash="copy.before_completed")
    config = _config(target, "auto")
    config.load.defer_indexes = True
    if shard_mode == "optimistic":
        config.shard_mode = config_pb2.SHARD_MODE_OPTIMISTIC
    with LaneRig(source, target, tmp_path, config) as rig:
        monkeypatch.setattr(deferred_index, "DEFER_FROM_ROWS", 10)
        monkeypatch.setattr(IndexAdder, "follow", _add_nothing)
        run = _interrupted_run(rig, pause, source, STATEMENTS["add"])
        until(lambda: "index" in getattr(run.unit, "activity", str)(), "the statement waits for the indexes", 20)
        run.stop()
        assert target.query("SELECT COUNT(*) FROM dm_meta.deferred_index") == [(2,)]
        monkeypatch.undo()
        source.execute("ALTER TABLE shard.t ADD COLUMN y INT")
        again = rig.begin(rig.config)
        _joined(again, target)
        names = {row[2] for row in target.query("SHOW INDEX FROM shard.t")}
        again.stop()
        assert names == {"PRIMARY", "by_v", "by_w"}
        _same(source, target)


def test_a_changed_key_stops_one_table_only(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _config(target, "auto")) as rig:
        run = _interrupted_run(rig, pause, source, ("ALTER TABLE shard.t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)",))

        def error() -> str:
            assert not run.ended, run.join()
            failed = run.unit.copy_status() if isinstance(run.unit, JoiningUnit) else ()
            return "".join(status.error.message for status in failed)

        assert "changed the key" in until(error, "the rest of the copy has failed")
        [(place,)] = target.query("SELECT place FROM dm_meta.statement_passed WHERE stream = 'MAIN'")
        assert "+partial" in str(place), "an earlier version must not continue"
        source.execute("UPDATE shard.u SET v = -5")
        until(lambda: target.query("SELECT COUNT(*) FROM shard.u WHERE v = -5") == [(100,)], "the other table goes on")
        assert not run.ended
        run.stop()


def test_tables_that_cannot_be_copied_do_not_delay_others(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five tables wait for the rest of their copy. The key of one has changed; the target refuses rows of another."""
    _make(source)
    others = ("w", "x", "y", "z")
    for name in others:
        source.execute(f"CREATE TABLE shard.{name} LIKE shard.u", f"INSERT INTO shard.{name} SELECT * FROM shard.u")
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _config(target, "auto")) as rig:
        alters = (f"ALTER TABLE shard.{name} ADD COLUMN n INT" for name in others)
        run = rig.begin(rig.config)
        pause.reached()
        target.execute(
            "CREATE TRIGGER shard.refuse BEFORE INSERT ON shard.x FOR EACH ROW SIGNAL SQLSTATE '45000' "
            "SET MESSAGE_TEXT = 'no row of x'"
        )
        source.execute("ALTER TABLE shard.t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)", *alters)
        pause.release()

        def failures() -> dict[tuple[str, ...], str]:
            assert not run.ended, run.join()
            found = run.unit.copy_status() if isinstance(run.unit, JoiningUnit) else ()
            return {tuple(status.tables): status.error.message for status in found if status.phase == "failed"}

        until(lambda: len(failures()) == 2, "two tables cannot be copied", 60)
        assert "changed the key" in failures()["shard.t",]
        assert "no row of x" in failures()["shard.x",]
        left = "SELECT shard FROM dm_meta.snapshot_interrupted"
        names = {number: table.name for number, table in enumerate(rig.tables)}

        def uncopied() -> set[str]:
            return {names[int(str(row[0]))] for row in target.query(left)}

        until(lambda: uncopied() == {"t", "x"}, "the others are copied", 60)
        source.execute(*(f"UPDATE shard.{name} SET v = -5, n = 1" for name in ("w", "y", "z")))
        for name in ("w", "y", "z"):
            until(lambda: target.query(f"SELECT COUNT(*) FROM shard.{name} WHERE n = 1") == [(100,)], name)  # noqa: B023
        _same(source, target, ("shard.w", "shard.y", "shard.z", "shard.u"))
        run.stop()
        target.execute("DROP TRIGGER shard.refuse")
        source.execute("ALTER TABLE shard.t DROP PRIMARY KEY, ADD PRIMARY KEY (id)")
        again = rig.begin(rig.config)
        until(lambda: uncopied() == {"t"}, "the table that the target refused is copied", 60)
        again.stop()


def test_a_filter_decides_in_the_stream(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    config = _config(target, "auto")
    config.event_filters.add(
        name="f",
        schema_pattern="shard*",
        table_pattern="*",
        events=["alter table"],
        action=config_pb2.FILTER_ACTION_ERROR,
    )
    with LaneRig(source, target, tmp_path, config) as rig:
        run = _interrupted_run(rig, pause, source, ("ALTER TABLE shard.t ADD COLUMN x INT",))
        outcome = run.join()
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.ddl.STATEMENT_FILTERED
        config.ClearField("event_filters")
        again = rig.begin(config)
        _joined(again, target)
        again.stop()
        _same(source, target)


def _full(target: Database) -> config_pb2.SubTaskConfig:
    config = _config(target, "auto")
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


@pytest.mark.parametrize("name", ["index", "truncate", "several", "drop table"])
def test_a_full_task_copies_the_rest_and_ends(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _full(target)) as rig:
        run = rig.begin(rig.config)
        pause.reached()
        before = _loaded(target)
        dropped = name == "drop table"
        source.execute(*_writes(1), *(("DROP TABLE shard.t",) if dropped else (*STATEMENTS[name], *_writes(2))))
        pause.release()
        _ended(run, target)
        assert pause.seen["whole.aligned"] >= 1, "its stream has run"
        if dropped:
            _same(source, target, ("shard.u",))
            assert target.query("SHOW TABLES FROM shard LIKE 't'") == []
        else:
            _same(source, target)
            assert before < _loaded(target), "no finished chunk is copied again"
        source.execute("UPDATE shard.u SET v = -5")
        _ended(rig.begin(rig.config), target)
        assert target.query("SELECT COUNT(*) FROM shard.u WHERE v = -5") == [(0,)]


@pytest.mark.parametrize("moment", ["handover", "copy.completed", "join.adopted", "whole.aligned", "full.finishing"])
def test_a_full_task_ends_after_a_crash(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    _make(source, "id INT PRIMARY KEY, v INT, w VARCHAR(20), KEY by_v (v)")
    monkeypatch.setattr(deferred_index, "DEFER_FROM_ROWS", 10)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4, crash=moment)
    config = _full(target)
    config.load.defer_indexes = True
    with LaneRig(source, target, tmp_path, config) as rig:
        run = _interrupted_run(rig, pause, source, (*STATEMENTS["several"], *_writes(2)))
        assert pause.crashed.wait(100)
        run.stop()
        source.execute(*_writes(3))
        _ended(rig.begin(config), target)
        _same(source, target, ("shard.t",) if moment == "full.finishing" else ("shard.t", "shard.u"))
        assert {row[2] for row in target.query("SHOW INDEX FROM shard.t")} == {"PRIMARY", "by_v"}


def test_a_full_task_ends_while_rows_and_structures_change(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    stop = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            source.execute(f"UPDATE shard.u SET v = {number} WHERE id = {number % 100}")

    config = _full(target)
    config.shard_mode = config_pb2.SHARD_MODE_OPTIMISTIC
    with LaneRig(source, target, tmp_path, config) as rig:
        run = _interrupted_run(rig, pause, source, STATEMENTS["add"])
        writer = threading.Thread(target=write)
        writer.start()
        try:
            _ended(run, target)
        finally:
            stop.set()
            writer.join()
        _same(source, target, ("shard.t",))


def test_a_lock_keeps_a_full_task_running(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement at the place where the task would end counts."""
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    config = _full(target)
    config.shard_mode = config_pb2.SHARD_MODE_PESSIMISTIC
    with LaneRig(source, target, tmp_path, config) as rig:
        run = _interrupted_run(rig, pause, source, ("TRUNCATE TABLE shard.t",))
        pause.hold_next("whole.aligning")
        pause.reached()
        source.execute("ALTER TABLE shard.u ADD INDEX i (v)", "UPDATE shard.u SET v = -5")
        pause.release()

        def waits_for() -> str:
            assert not run.ended, run.join()
            return run.unit.activity() if isinstance(run.unit, JoiningUnit) else ""

        until(lambda: "1 shard table(s) are parked" in waits_for(), "the lock waits for other sources")
        assert pause.seen["whole.aligned"] == 1
        assert "task-mode full" in waits_for()
        run.stop()
        [(parked,)] = target.query("SELECT parked FROM dm_meta.parked_table")
        place = json.loads(str(parked))["place"]["position"]
        skip = BinlogOp(kind=BinlogOp.KIND_SKIP, file=place["file"], pos=place["pos"])
        _ended(rig.begin(config, ops=(skip,)), target)
        _same(source, target)


def test_the_status_of_a_full_task_whose_copy_was_interrupted(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _full(target)) as rig:
        run = _interrupted_run(rig, pause, source, ("ALTER TABLE shard.t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)",))

        def error() -> str:
            assert not run.ended, run.join()
            joining = run.unit.join_status() if isinstance(run.unit, JoiningUnit) else None
            return joining.error.message if joining is not None else ""

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


@pytest.mark.parametrize("moment", ["snapshot.planning", "snapshot.before_commit", "handover"])
def test_a_table_that_is_created_during_the_copy(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Also before the first chunk is read: the stream must not begin after it."""
    _make(source)
    pause = _Pause(monkeypatch, moment, 1)
    with LaneRig(source, target, tmp_path, _config(target, "auto")) as rig:
        run = rig.begin(rig.config)
        pause.reached()
        source.execute("CREATE TABLE shard.n (id INT PRIMARY KEY, v INT)", "INSERT INTO shard.n VALUES (1, 1), (2, 2)")
        pause.release()
        source.execute("INSERT INTO shard.n VALUES (3, 3)")
        _joined(run, target)
        run.stop()
        _same(source, target, ("shard.t", "shard.u", "shard.n"))
