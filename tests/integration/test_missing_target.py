"""Tests that a target table into which rows were merged is never created again without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.unit.contract import Failed
from tests.integration.interrupted_copy import Pause
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

pytestmark = pytest.mark.turns

COLUMNS = "id INT PRIMARY KEY, v INT, w VARCHAR(20)"
MISSING, EMPTY = errors.replicate.MERGED_TABLE_MISSING, errors.replicate.MERGED_TABLE_EMPTY


def _make(source: Database, rows: int = 100, columns: str = COLUMNS) -> None:
    """Create two shard tables of merged.t with this number of rows each, and a table that is merged alone."""
    tables = [f"CREATE TABLE {name} ({columns}) ENGINE=InnoDB" for name in ("t_1", "t_2")]
    filled = (
        [
            f"INSERT INTO t_1 SELECT seq, seq, 'one' FROM seq_1_to_{rows}",
            f"INSERT INTO t_2 SELECT seq + 1000, seq, 'two' FROM seq_1_to_{rows}",
        ]
        if rows
        else []
    )
    make_tables(source, *tables, *filled, "CREATE TABLE u (id INT PRIMARY KEY, v INT)", "INSERT INTO u VALUES (1, 1)")


def _config(target: Database) -> config_pb2.SubTaskConfig:
    config = subtask_config(target, threads=1, chunk_rows=20)
    config.replicate.lanes = 2
    config.routes.add(
        name="merge", schema_pattern="shard", table_pattern="t_*", target_schema="merged", target_table="t"
    )
    return config


def _rows(source: Database) -> list[tuple[object, ...]]:
    return source.query("SELECT * FROM shard.t_1 UNION ALL SELECT * FROM shard.t_2 ORDER BY id")


def _same(source: Database, target: Database) -> None:
    assert target.query("SELECT * FROM merged.t ORDER BY id") == _rows(source)


def _exists(target: Database) -> bool:
    return bool(target.query("SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'merged'"))


def _failed(run: Run, spec: ErrorSpec = MISSING) -> ShardmergeError:
    outcome = run.join()
    assert isinstance(outcome, Failed), outcome
    assert outcome.error.spec is spec, outcome.error
    assert "{" not in outcome.error.message + outcome.error.workaround
    assert "<" not in outcome.error.message
    return outcome.error


def _merged(rig: LaneRig, run: Run | None = None) -> None:
    """Copy everything, or let ``run`` do so; then end the run."""
    run = run or rig.begin(rig.config)
    run.until_synced()
    run.stop()


@pytest.mark.parametrize("rows", [100, 0], ids=["copied", "by the stream"])
def test_a_new_run_does_not_create_it(source: Database, target: Database, tmp_path: Path, rows: int) -> None:
    _make(source, rows)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        run = rig.begin(rig.config)
        run.until_synced()
        source.execute("INSERT INTO shard.t_2 VALUES (5000, 1, 'late')", "UPDATE shard.u SET v = 2")
        run.until_synced()
        run.stop()
        _same(source, target)
        target.execute("DROP TABLE merged.t")
        for _ in range(2):
            error = _failed(rig.begin(rig.config))
            assert "merged.t is missing, found at the start" in error.message
            assert "shard.t_" in error.message
            assert not _exists(target)
        # As the way out says; the rows are the operator's.
        [(_, creation)] = source.query("SHOW CREATE TABLE shard.t_1")
        target.execute(str(creation).replace("`t_1`", "`merged`.`t`"))
        source.execute("INSERT INTO shard.t_1 VALUES (6000, 1, 'after')")
        _merged(rig)
        assert target.query("SELECT id FROM merged.t") == [(6000,)]


def test_every_run_creates_it_while_no_row_was_merged(source: Database, target: Database, tmp_path: Path) -> None:
    _make(source, 0)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        _merged(rig)
        for _ in range(2):
            target.execute("DROP TABLE merged.t")
            _merged(rig)
            assert _exists(target)
        source.execute("INSERT INTO shard.t_1 VALUES (1, 1, 'first')")
        _merged(rig)
        _same(source, target)
        target.execute("DROP TABLE merged.t")
        _failed(rig.begin(rig.config))


def test_a_run_of_an_earlier_version_may_have_merged_rows(source: Database, target: Database, tmp_path: Path) -> None:
    """An earlier version raises the subtask's epoch only."""
    _make(source, 0)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        _merged(rig)
        assert target.query("SELECT COUNT(*) FROM dm_meta.rowless_table") == [(3,)]
        target.execute("UPDATE dm_meta.subtask SET epoch = epoch + 1", "DROP TABLE merged.t")
        _failed(rig.begin(rig.config))


def test_a_target_that_the_task_has_not_created(source: Database, target: Database, tmp_path: Path) -> None:
    """It may have had rows before the task: an incremental task continues on them."""
    _make(source, 0)
    target.execute(
        "CREATE DATABASE merged", f"CREATE TABLE merged.t ({COLUMNS})", "INSERT INTO merged.t VALUES (1,1,'')"
    )
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        run = rig.replicate(2)
        run.until_synced()
        run.stop()
        target.execute("DROP TABLE merged.t")
        _failed(rig.replicate(2))
        assert not _exists(target)


@pytest.mark.parametrize("columns", [COLUMNS, "id INT, v INT, w VARCHAR(20)"], ids=["with a key", "without a key"])
@pytest.mark.parametrize("gone", ["DROP TABLE merged.t", "DROP DATABASE merged", "RENAME TABLE merged.t TO merged.x"])
def test_a_lane_names_it_at_once(source: Database, target: Database, tmp_path: Path, gone: str, columns: str) -> None:
    _make(source, columns=columns)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        run = rig.begin(rig.config)
        run.until_synced()
        target.execute(gone)
        source.execute("UPDATE shard.u SET v = 2", "INSERT INTO shard.t_2 VALUES (5000, 1, 'late')")
        error = _failed(run)
        assert "while changes up to " in error.message
        assert "shard.t_2" in error.message
        _failed(rig.begin(rig.config))
        if gone.startswith("RENAME"):
            target.execute("RENAME TABLE merged.x TO merged.t")
            _merged(rig)
            _same(source, target)


STATEMENTS = {
    "alter": ("ALTER TABLE shard.t_1 ADD COLUMN x INT",),
    "truncate": ("TRUNCATE TABLE shard.t_1",),
    "create": ("CREATE TABLE shard.t_3 LIKE shard.t_1",),
    "rename": ("RENAME TABLE shard.t_1 TO shard.t_9",),
}


@pytest.mark.parametrize("name", list(STATEMENTS))
def test_a_statement_does_not_create_it(source: Database, target: Database, tmp_path: Path, name: str) -> None:
    _make(source)
    config = _config(target)
    if name in ("alter", "truncate"):
        config.block_allow_list.do_tables.extend(
            config_pb2.TableName(schema="~^shard", table=table) for table in ("t_1", "u")
        )
    with LaneRig(source, target, tmp_path, config) as rig:
        run = rig.begin(rig.config)
        run.until_synced()
        target.execute("DROP TABLE merged.t")
        source.execute(*STATEMENTS[name])
        error = _failed(run)
        assert "before the statement at " in error.message
        assert not _exists(target)
        _failed(rig.begin(rig.config))
        assert not _exists(target)


def test_during_the_copy(source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make(source)
    pause = Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        run = rig.begin(rig.config)
        pause.reached()
        run.stop_signal.set()
        pause.release()
        run.join()
        [(count,)] = target.query("SELECT COUNT(*) FROM merged.t")
        assert 0 < int(str(count)) < 200
        target.execute("CREATE TABLE merged.copy LIKE merged.t", "INSERT INTO merged.copy SELECT * FROM merged.t")
        target.execute("TRUNCATE TABLE merged.t")
        error = _failed(rig.begin(rig.config), EMPTY)
        assert f"has copied {count} rows" in error.message
        target.execute("DROP TABLE merged.t")
        _failed(rig.begin(rig.config))
        target.execute("RENAME TABLE merged.copy TO merged.t")
        _merged(rig)
        _same(source, target)


def test_while_a_chunk_is_loaded(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(source)
    pause = Pause(monkeypatch, "snapshot.after_commit", 4)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        run = rig.begin(rig.config)
        pause.reached()
        target.execute("DROP TABLE merged.t")
        pause.release()
        assert "was loaded" in _failed(run).message
        _failed(rig.begin(rig.config))
        assert not _exists(target)


def test_a_table_that_the_source_has_emptied(source: Database, target: Database, tmp_path: Path) -> None:
    _make(source)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        run = rig.begin(rig.config)
        run.until_synced()
        source.execute("DELETE FROM shard.t_1", "DELETE FROM shard.t_2")
        run.until_synced()
        run.stop()
        assert target.query("SELECT COUNT(*) FROM merged.t") == [(0,)]
        source.execute("INSERT INTO shard.t_1 VALUES (1, 1, 'again')")
        _merged(rig)
        _same(source, target)


def test_rows_of_another_source(source: Database, target: Database, tmp_path: Path) -> None:
    _make(source)
    (tmp_path / "other").mkdir()
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        _merged(rig)
        target.execute("DROP TABLE merged.t")
        config = _config(target)
        config.source_id = "s2"
        with LaneRig(source, target, tmp_path / "other", config) as other:
            other.config.CopyFrom(config)
            _failed(other.begin(config))
        assert not _exists(target)


REPLACED = {
    "drop": ("DROP TABLE shard.t_1",),
    "drop and create": ("DROP TABLE shard.t_1", f"CREATE TABLE shard.t_1 ({COLUMNS})"),
    "create or replace": (f"CREATE OR REPLACE TABLE shard.t_1 ({COLUMNS})",),
    "rename": ("RENAME TABLE shard.t_1 TO shard.v_1",),
}


@pytest.mark.parametrize(
    ("name", "moment"),
    [(name, moment) for name in REPLACED for moment in ("ddl.run", "ddl.before_passing")]
    + [("drop and create", "ddl.made"), ("create or replace", "ddl.made")],
)
def test_the_task_may_drop_and_create_it_itself(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, moment: str
) -> None:
    """Also when it is killed in between."""
    if name == "create or replace" and source.flavor == "mysql":
        pytest.skip("MySQL has no CREATE OR REPLACE TABLE")
    _make(source)
    config = _config(target)
    config.block_allow_list.do_tables.extend(
        config_pb2.TableName(schema="~^shard", table=table) for table in ("t_1", "u", "v_1")
    )
    with LaneRig(source, target, tmp_path, config) as rig:
        run = rig.begin(rig.config)
        run.until_synced()
        crash: Callable[[], bool] = _crash_at(monkeypatch, moment)
        source.execute(*REPLACED[name])
        until(lambda: crash() or run.status().synced or run.ended, "it has crashed, or does not reach the moment")
        run.stop()
        monkeypatch.undo()
        run = rig.begin(rig.config)
        run.until_synced()
        if name == "rename":
            source.execute("INSERT INTO shard.v_1 VALUES (5000, 1, 'late')")
        elif name != "drop":
            source.execute("INSERT INTO shard.t_1 VALUES (5000, 1, 'late')")
        run.until_synced()
        run.stop()
        if name == "rename":
            assert target.query("SELECT * FROM shard.v_1") == source.query("SELECT * FROM shard.v_1")
        elif name == "drop":
            assert not _exists(target)
        else:
            assert target.query("SELECT id FROM merged.t") == [(5000,)]


class _Crash(Exception):
    """The program ends at a moment."""


def _crash_at(monkeypatch: pytest.MonkeyPatch, moment: str) -> Callable[[], bool]:
    """Let the first thread fail that reaches the moment. Returns whether one has."""
    seen: list[str] = []

    def hit(name: str) -> None:
        if name == moment and not seen:
            seen.append(name)
            raise _Crash(name)

    monkeypatch.setattr("shardmerge.proto.failpoints.hit", hit)
    return lambda: bool(seen)
