"""Tests statements on a table while its history is copied: finished chunks are kept, the rest is copied after them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.replicate.join.unit import JoiningUnit
from shardmerge.worker.target.tables import deferred_index
from shardmerge.worker.target.tables.index_adder import IndexAdder
from shardmerge.worker.unit.contract import Failed, Outcome
from tests.integration.interrupted_copy import MOMENTS, STATEMENTS
from tests.integration.interrupted_copy import Pause as _Pause
from tests.integration.interrupted_copy import config_of as _config
from tests.integration.interrupted_copy import interrupted_run as _interrupted_run
from tests.integration.interrupted_copy import loaded as _loaded
from tests.integration.interrupted_copy import make as _make
from tests.integration.interrupted_copy import same as _same
from tests.integration.interrupted_copy import writes as _writes
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_tables import servers, source, target
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["servers", "source", "target"]


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
    if source.flavor == "mysql" and position == "auto":
        pytest.skip("the same as watermark on MySQL")
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _config(target, position)) as rig:
        run = rig.begin(rig.config)
        pause.reached()
        before = _loaded(target)
        source.execute(*_writes(1), *STATEMENTS[name], *_writes(2))
        pause.release()
        source.execute(*_writes(3))
        run.until_joined(target)
        source.execute(*_writes(4))
        run.until_joined(target)
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
        run.until_joined(target)
        run.stop()
        _same(source, target)


KEYS = {
    "composite": "id INT, v INT, w VARCHAR(20), PRIMARY KEY (id, v)",
    "text": "id VARCHAR(30) PRIMARY KEY, v INT, w VARCHAR(20)",
    "two unique keys": "id INT PRIMARY KEY, v INT, w VARCHAR(20), g INT AS (id * 2) STORED UNIQUE",
    "none": "id INT, v INT, w VARCHAR(20)",
}


@pytest.mark.turns
@pytest.mark.parametrize("name", list(KEYS))
def test_every_kind_of_key(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _make(source, KEYS[name])
    pause = _Pause(monkeypatch, "snapshot.before_commit", 1 if name in ("none", "two unique keys") else 4)
    with LaneRig(source, target, tmp_path, _config(target, "auto")) as rig:
        statements = () if name == "none" else _writes(2)
        run = _interrupted_run(rig, pause, source, (*STATEMENTS["several"], *statements))
        run.until_joined(target)
        source.execute(*_writes(3))
        run.until_joined(target)
        run.stop()
        _same(source, target)


@pytest.mark.turns
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
        again.until_joined(target)
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
        again.until_joined(target)
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
        source.execute("UPDATE shard.u SET v = -5")
        until(lambda: target.query("SELECT COUNT(*) FROM shard.u WHERE v = -5") == [(100,)], "the other table goes on")
        assert not run.ended
        run.stop()


@pytest.mark.turns
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
        again.until_joined(target)
        again.stop()
        _same(source, target)


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
        run.until_joined(target)
        run.stop()
        _same(source, target, ("shard.t", "shard.u", "shard.n"))


RENAMES = {
    # The statements while the rest of the history is copied, and the tables at the end.
    "rename": (
        (
            "RENAME TABLE shard.t TO shard.t2",
            "INSERT INTO shard.t2 (id, v) VALUES (-900, 1)",
            "UPDATE shard.t2 SET v = v + 5 WHERE id % 11 = 0",
            "CREATE TABLE shard.n LIKE shard.t2",
            "INSERT INTO shard.n (id, v) VALUES (1, 1), (2, 2)",
            "ALTER TABLE shard.t2 ADD COLUMN y INT",
            "UPDATE shard.t2 SET y = 4 WHERE id % 13 = 0",
        ),
        ("shard.t2", "shard.n", "shard.u"),
    ),
    "both": (
        (
            "RENAME TABLE shard.t TO shard.t2, shard.u TO shard.u2",
            "INSERT INTO shard.t2 (id, v) VALUES (-900, 1)",
            "UPDATE shard.t2 SET v = v + 5 WHERE id % 11 = 0",
            "UPDATE shard.u2 SET v = v + 7 WHERE id % 11 = 0",
        ),
        ("shard.t2", "shard.u2"),
    ),
}


@pytest.mark.parametrize("restarts", [False, True], ids=["one run", "restarts"])
@pytest.mark.parametrize("name", list(RENAMES))
def test_a_rename_while_the_rest_is_copied(
    source: Database,
    target: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    restarts: bool,
) -> None:
    """The targets are renamed too: each shard table has one of its own."""
    statements, names = RENAMES[name]
    _make(source)
    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _config(target, "auto")) as rig:
        run = _interrupted_run(rig, pause, source, STATEMENTS["add"])
        monkeypatch.undo()
        again = _Pause(monkeypatch, "snapshot.before_commit", 2)
        again.reached()
        source.execute(*statements)
        until(lambda: '"away":[{' in str(target.query("SELECT dealing FROM dm_meta.subtask")), "the name is recorded")
        again.release()
        if restarts:
            run.stop()
            run = rig.begin(rig.config)
        run.until_joined(target)
        run.stop()
        _same(source, target, names)


def test_targets_that_would_be_exchanged(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shard table has a target of its own, and one is away: no stream may rename both targets."""
    _make(source)
    streams_ended = threading.Event()
    run_streams = JoiningUnit.run

    def run_and_record(unit: JoiningUnit, stop: StopSignal) -> Outcome:
        try:
            return run_streams(unit, stop)
        finally:
            streams_ended.set()

    pause = _Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _config(target, "auto")) as rig:
        run = _interrupted_run(rig, pause, source, STATEMENTS["add"])
        monkeypatch.undo()
        monkeypatch.setattr(JoiningUnit, "run", run_and_record)
        again = _Pause(monkeypatch, "snapshot.before_commit", 2)
        again.reached()
        source.execute("RENAME TABLE shard.t TO shard.tmp, shard.u TO shard.t, shard.tmp TO shard.u")
        # The run itself ends only after the copy, which the pause holds.
        assert streams_ended.wait(100), "the streams stop before the statement"
        again.release()
        outcome = run.join()
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.ddl.RENAME_REMAPS
        assert target.query("SELECT COUNT(*) FROM shard.u") == [(100,)]
