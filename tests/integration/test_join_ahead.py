"""Tests ALTERs of many shard tables in a row under ``shard-mode: optimistic``: one barrier, rows before and after each.

The lanes meet each table's statement at its own place, also after a crash when some of them are before it and others
after it (I1, I2).
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Side
from shardmerge.worker.ddl import following
from shardmerge.worker.ddl.structure.recorded_structures import RecordedStructures
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import servers, source, target
from tests.support.database import Database

__all__ = ["servers", "source", "target"]

TABLES = 6


class _Crash(Exception):
    """The program ends at a moment."""


class _Moments:
    """Counts the moments that the program reaches. One of them can crash it; one can wait, after the first barrier."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = Counter[str]()
        self.crash, self.hold = "", ""
        self._go_on, self.held = threading.Event(), threading.Event()
        monkeypatch.setattr(failpoints, "hit", self._hit)
        monkeypatch.setattr(following, "SECONDS", 60.0)  # a slow machine must not divide the statements

    def _hit(self, moment: str) -> None:
        self.seen[moment] += 1
        if moment == self.crash:
            self.crash = ""
            raise _Crash(moment)
        if moment == self.hold and self.seen["ddl.passed"]:  # at the barrier, the lanes commit too
            self.held.set()
            assert self._go_on.wait(120)

    def release(self) -> None:
        self.hold = ""
        self._go_on.set()


def _create(source: Database, tables: int = TABLES) -> None:
    source.execute("DROP DATABASE IF EXISTS shard", "CREATE DATABASE shard")
    for number in range(tables):
        base = number * 1000
        source.execute(
            f"CREATE TABLE shard.t{number} (id INT PRIMARY KEY, v INT, w VARCHAR(20)) ENGINE=InnoDB",
            f"INSERT INTO shard.t{number} VALUES ({base + 1}, 1, 'a'), ({base + 2}, 2, 'b'), ({base + 3}, 3, 'c')",
        )


def _config(target: Database, lanes: int = 2) -> config_pb2.SubTaskConfig:
    config = subtask_config(target, threads=1)
    config.shard_mode = config_pb2.SHARD_MODE_OPTIMISTIC
    config.replicate.lanes = lanes
    config.routes.add(name="r", schema_pattern="shard", table_pattern="t*", target_schema="merged", target_table="t")
    return config


def _alter(source: Database, added: str = "x INT NOT NULL DEFAULT 7", again: int = 0) -> None:
    """Alter one table after the other, with rows of all tables before and after each statement."""
    column = added.split(maxsplit=1)[0]
    for number in range(TABLES):
        for other in range(TABLES):
            base = other * 1000 + 10 + number * 10 + again * 100
            source.execute(
                f"INSERT INTO shard.t{other} (id, v) VALUES ({base}, {number}), ({base + 1}, {number})",
                f"UPDATE shard.t{other} SET v = v + 1 WHERE id % 2 = {number % 2}",
                f"DELETE FROM shard.t{other} WHERE id = {base - 9 if number else -1}",
            )
        source.execute(
            f"UPDATE shard.t{number} SET id = id + 500 WHERE id = {number * 1000 + 1}",
            f"ALTER TABLE shard.t{number} ADD COLUMN {added}",
            f"INSERT INTO shard.t{number} (id, {column}) VALUES ({number * 1000 + 900 + again}, 4)",
            f"UPDATE shard.t{number} SET {column} = 5 WHERE id % 3 = 0",
            f"UPDATE shard.t{number} SET id = id + 1 WHERE id = {number * 1000 + 501}",
        )


def _rows(source: Database, columns: str, tables: int = TABLES) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for number in range(tables):
        found += source.query(f"SELECT {columns} FROM shard.t{number} ORDER BY id")
    return found


def _is_same(source: Database, target: Database, columns: str = "*", tables: int = TABLES) -> bool:
    return target.query(f"SELECT {columns} FROM merged.t ORDER BY id") == _rows(source, columns, tables)


def _copied(rig: LaneRig, target: Database) -> None:
    """Copy the history, and stop."""
    run = rig.begin(rig.config)
    run.until_joined(target, 60)
    run.stop()


@pytest.mark.parametrize("added", ["x INT NOT NULL DEFAULT 7", "x INT", "x INT DEFAULT 3 FIRST"])
def test_one_barrier_executes_all_statements(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, added: str
) -> None:
    _create(source)
    moments = _Moments(monkeypatch)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        _copied(rig, target)
        _alter(source, added)
        rig.until_fetched()
        run = rig.begin(rig.config)
        run.until_joined(target, 60)
        assert moments.seen["ddl.passed"] == 1
        assert _is_same(source, target, "id, v, w, x")
        # A further statement of the same tables: the lanes are after all places.
        _alter(source, "y INT DEFAULT 1", 1)
        run.until_joined(target, 60)
        assert _is_same(source, target, "id, v, w, x, y")
        run.stop()


@pytest.mark.turns
@pytest.mark.parametrize("moment", ["ddl.before_passing", "ddl.passing", "ddl.passed", "lane0.commit", "lane1.commit"])
def test_a_crash(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    _create(source)
    moments = _Moments(monkeypatch)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        _copied(rig, target)
        _alter(source)
        rig.until_fetched()
        moments.crash = moment
        run = rig.begin(rig.config)
        run.join()
        assert not moments.crash
        run = rig.begin(rig.config)
        run.until_joined(target, 60)
        assert _is_same(source, target, "id, v, w, x")
        run.stop()


def _check_not_replaceable(rig: LaneRig) -> None:
    """Check that an operator cannot replace a structure of which the lanes have not reached the statement."""
    session = rig.session(Side.TARGET)
    try:
        recorded = RecordedStructures.read(session, rig.config)
        assert recorded is not None
        with pytest.raises(ShardmergeError, match="have not reached the statement") as refused:
            recorded.check_replaceable(session, recorded.find("shard", f"t{TABLES - 1}"))
        assert refused.value.spec is errors.ddl.SCHEMA_TOO_EARLY
        recorded.check_replaceable(session, recorded.find("shard", "t0"))
    finally:
        session.close()


@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("begins_anew", [False, True])
def test_lanes_on_both_sides(
    source: Database,
    target: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lanes: int,
    begins_anew: bool,
) -> None:
    """One lane is before all statements, the other after them, when the run ends. The next run has ``lanes`` lanes, and
    perhaps another relay log."""
    _create(source)
    moments = _Moments(monkeypatch)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        _copied(rig, target)
        _alter(source)
        rig.until_fetched()
        end = rig.position()
        moments.hold = "lane0.before_commit"
        run = rig.begin(rig.config)
        rig.until_past(end, [1])
        assert moments.held.wait(60)
        assert len({(segment, byte) for _, segment, byte, _ in rig.checkpoints()}) == 2
        moments.crash = "lane0.before_commit"
        run.stop_signal.set()
        moments.release()
        run.join()
        _check_not_replaceable(rig)
        if begins_anew:
            rig.renew_relay(tmp_path / "another")
        config = config_pb2.SubTaskConfig()
        config.CopyFrom(rig.config)
        config.replicate.lanes = lanes
        run = rig.begin(config)
        run.until_joined(target, 60)
        assert _is_same(source, target, "id, v, w, x")
        source.execute(*(f"ALTER TABLE shard.t{number} ADD COLUMN z INT" for number in range(TABLES)))
        source.execute(*(f"UPDATE shard.t{number} SET z = id, x = 1" for number in range(TABLES)))
        run.until_joined(target, 60)
        assert _is_same(source, target, "id, v, w, x, z")
        run.stop()


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE shard.t2 ADD COLUMN x BIGINT NOT NULL DEFAULT 7",),
        ("ALTER TABLE shard.t2 ADD COLUMN x INT NOT NULL DEFAULT 7, ADD COLUMN y INT",),
        ("ALTER TABLE shard.t2 ADD COLUMN x INT NOT NULL DEFAULT 7, ADD INDEX (v)",),
        ("ALTER TABLE shard.t2 DROP COLUMN w", "ALTER TABLE shard.t2 ADD COLUMN x INT NOT NULL DEFAULT 7"),
        ("ALTER TABLE shard.t1 ADD COLUMN y INT", "ALTER TABLE shard.t2 ADD COLUMN x INT NOT NULL DEFAULT 7"),
        ("CREATE TABLE shard.t9 LIKE shard.t1", "ALTER TABLE shard.t2 ADD COLUMN x INT NOT NULL DEFAULT 7"),
        ("CREATE INDEX i ON shard.t1 (v)", "ALTER TABLE shard.t2 ADD COLUMN x INT NOT NULL DEFAULT 7"),
    ],
)
def test_other_statements_are_barriers(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: tuple[str, ...]
) -> None:
    _create(source)
    moments = _Moments(monkeypatch)
    with LaneRig(source, target, tmp_path, _config(target)) as rig:
        _copied(rig, target)
        for number in range(2):
            source.execute(f"ALTER TABLE shard.t{number} ADD COLUMN x INT NOT NULL DEFAULT 7")
        source.execute("UPDATE shard.t1 SET x = 3 WHERE id = 1001", *statements)
        for number in range(3, TABLES):
            source.execute(f"ALTER TABLE shard.t{number} ADD COLUMN x INT NOT NULL DEFAULT 7")
        source.execute(*(f"INSERT INTO shard.t{number} (id, x) VALUES ({number}500, 8)" for number in range(1, TABLES)))
        rig.until_fetched()
        run = rig.begin(rig.config)
        run.until_joined(target, 60)
        assert moments.seen["ddl.passed"] > 1
        assert _is_same(source, target, "id, v, x")
        run.stop()
