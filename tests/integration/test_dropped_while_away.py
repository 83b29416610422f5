"""Tests DROP TABLE of a shard table that is parked at a sharding DDL, and the tables that get its name afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, failpoints
from tests.integration.lane_rig import LaneRig, Run, has_joined
from tests.integration.local_locks import LocalLocks
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import servers, source, target
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

ALTER = "ADD COLUMN x INT NOT NULL DEFAULT 7"


class Dropped:
    """A run of a pessimistic task whose shard tables ``shard_1.t_1``, ``t_2``, ``t_3`` and ``t_4`` have one target.
    ``t_1`` is parked. An event filter skips DROP TABLE: the rows of a dropped table stay at the target."""

    def __init__(self, rig: LaneRig) -> None:
        self.rig, self.source = rig, rig.source
        self.stay: list[tuple[object, ...]] = []
        self.locks = rig.locks = LocalLocks()
        self.run: Run = rig.begin(rig.config)
        until(lambda: self.locks.record.targets, "the history is copied, and the tables are published")
        self.source.execute(f"ALTER TABLE shard_1.t_1 {ALTER}", "INSERT INTO shard_1.t_1 VALUES (10, 10, 10)")
        until(lambda: self.locks.parked() == {"t_1"}, "t_1 is parked")

    def restart(self) -> None:
        self.run.stop()
        self.run = self.rig.begin(self.rig.config)

    def until_passed(self) -> None:
        """Wait until the main stream has applied everything."""
        self.source.execute("INSERT INTO shard_1.t_4 VALUES (90, 0) ON DUPLICATE KEY UPDATE v = v + 1")
        wanted = self.source.query("SELECT v FROM shard_1.t_4 WHERE id = 90")
        until(
            lambda: self.rig.target.query("SELECT v FROM shard.t WHERE id = 90") == wanted, "the main stream is there"
        )

    def same(self, *names: str) -> None:
        """Wait until everything has joined; the target must have the rows of these tables."""
        self.run.until_joined(self.rig.target)
        wanted = self.source.query(" UNION ALL ".join(f"SELECT id, v, x FROM shard_1.{name}" for name in names))
        assert sorted(self.rig.target.query("SELECT id, v, x FROM shard.t")) == sorted([*wanted, *self.stay])


@pytest.fixture
def dropped(source: Database, target: Database, tmp_path: Path) -> Iterator[Dropped]:
    source.execute("CREATE DATABASE shard_1")
    for number in (1, 2, 3, 4):
        source.execute(
            f"CREATE TABLE shard_1.t_{number} (id BIGINT PRIMARY KEY, v INT)",
            f"INSERT INTO shard_1.t_{number} VALUES ({number}, {number})",
        )
    config = subtask_config(target)
    config.shard_mode = config_pb2.SHARD_MODE_PESSIMISTIC
    config.replicate.lanes = 2
    config.routes.add(name="r", schema_pattern="shard_*", table_pattern="t_*", target_schema="shard", target_table="t")
    config.event_filters.add(
        name="f",
        schema_pattern="shard_*",
        table_pattern="t_*",
        events=["drop table"],
        action=config_pb2.FILTER_ACTION_IGNORE,
    )
    with LaneRig(source, target, tmp_path, config) as rig:
        made = Dropped(rig)
        yield made
        made.run.stop()


class _Crash(Exception):
    """The program ends at a moment."""


class _CrashAt:
    """Lets the program end when it comes to a statement for the ``count``-th time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self._left = count
        self.crashed = threading.Event()
        monkeypatch.setattr(failpoints, "hit", self._hit)

    def _hit(self, moment: str) -> None:
        if moment == "ddl.before":
            self._left -= 1
            if self._left == 0:
                self.crashed.set()
                raise _Crash(moment)


NEW = "(id BIGINT PRIMARY KEY, v INT, x INT NOT NULL DEFAULT 8)"

SCRIPTS = {
    # Statements after t_1 is parked, and the names of the shard tables at the end.
    "made again": (
        (
            "DROP TABLE shard_1.t_1",
            f"CREATE TABLE IF NOT EXISTS shard_1.t_1 {NEW}",
            "INSERT INTO shard_1.t_1 (id, v) VALUES (20, 20)",
            "RENAME TABLE shard_1.t_1 TO shard_1.t_5",
            "CREATE TABLE shard_1.t_1 (id BIGINT PRIMARY KEY, v INT)",
            "INSERT INTO shard_1.t_1 (id, v) VALUES (30, 30)",
            "INSERT INTO shard_1.t_5 (id, v) VALUES (40, 40)",
        ),
        ("t_1", "t_2", "t_3", "t_5", "t_4"),
    ),
    "there already": (
        (
            f"CREATE TABLE IF NOT EXISTS shard_1.t_1 {NEW}",
            "RENAME TABLE shard_1.t_1 TO shard_1.t_5",
            "CREATE TABLE shard_1.t_1 (id BIGINT PRIMARY KEY, v INT)",
            "INSERT INTO shard_1.t_1 (id, v) VALUES (30, 30)",
            "INSERT INTO shard_1.t_5 (id, v) VALUES (40, 40)",
        ),
        ("t_1", "t_2", "t_3", "t_5", "t_4"),
    ),
    "another table gets the name": (
        (
            "DROP TABLE IF EXISTS shard_1.t_1, shard_1.t_8",
            "RENAME TABLE shard_1.t_2 TO shard_1.t_1",
            f"CREATE TABLE IF NOT EXISTS shard_1.t_1 {NEW}",
            "INSERT INTO shard_1.t_1 (id, v) VALUES (30, 30)",
            "CREATE TABLE IF NOT EXISTS shard_1.t_2 (id BIGINT PRIMARY KEY, v INT)",
            "INSERT INTO shard_1.t_2 (id, v) VALUES (40, 40)",
        ),
        ("t_1", "t_2", "t_3", "t_4"),
    ),
}


@pytest.mark.turns
@pytest.mark.parametrize(
    ("name", "count"), [("made again", 2), ("made again", 3), ("there already", 1), ("another table gets the name", 1)]
)
def test_a_restart_before_its_stream_has_caught_up(
    dropped: Dropped, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    """``count``: the statement of its stream before which the program ends."""
    statements, names = SCRIPTS[name]
    for statement in statements:
        if statement.startswith("DROP TABLE"):
            dropped.stay = list(dropped.source.query("SELECT id, v, x FROM shard_1.t_1"))
        dropped.source.execute(statement)
    dropped.until_passed()
    dropped.restart()
    dropped.until_passed()
    altered = [at for at in names if not dropped.source.query(f"SHOW COLUMNS FROM shard_1.{at} LIKE 'x'")]
    dropped.source.execute(*(f"ALTER TABLE shard_1.{at} {ALTER}" for at in altered[:-1]))
    dropped.until_passed()
    crash = _CrashAt(monkeypatch, 1 + count)  # the main stream comes to the last ALTER first
    dropped.source.execute(f"ALTER TABLE shard_1.{altered[-1]} {ALTER}")

    def done() -> bool:
        if crash.crashed.is_set():
            crash.crashed.clear()
            for number, at in enumerate(names):
                dropped.source.execute(f"INSERT INTO shard_1.{at} (id, v) VALUES ({50 + number}, {50 + number})")
            dropped.restart()
        return not crash.crashed.is_set() and has_joined(dropped.run, dropped.rig.target)

    until(done, "everything is applied", 120)
    for number, at in enumerate(names):
        dropped.source.execute(f"INSERT INTO shard_1.{at} (id, v) VALUES ({60 + number}, {60 + number})")
    dropped.same(*names)
    dropped.restart()
    dropped.same(*names)
