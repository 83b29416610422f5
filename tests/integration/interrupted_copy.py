"""Interrupts the copy of a table with statements, for tests."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from shardmerge.proto import config_pb2, failpoints
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables
from tests.support.database import Database

ROWS = 1000
CHUNKS = 10

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


def make(source: Database, columns: str = "id INT PRIMARY KEY, v INT, w VARCHAR(20)") -> None:
    make_tables(
        source,
        f"CREATE TABLE t ({columns}) ENGINE=InnoDB",
        f"INSERT INTO t (id, v, w) SELECT seq, seq, CONCAT('text ', seq) FROM seq_1_to_{ROWS}",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT) ENGINE=InnoDB",
        "INSERT INTO u SELECT seq, seq FROM seq_1_to_100",
        "ANALYZE TABLE t, u",
    )


def config_of(target: Database, position: str = "auto") -> config_pb2.SubTaskConfig:
    config = subtask_config(target, threads=1, chunk_rows=ROWS // CHUNKS, position=position)
    config.replicate.lanes = 2
    return config


def same(source: Database, target: Database, tables: tuple[str, ...] = ("shard.t", "shard.u")) -> None:
    for table in tables:
        wanted = source.query(f"SELECT * FROM {table} ORDER BY id")
        found = target.query(f"SELECT * FROM {table} ORDER BY id")
        assert found == wanted, table


def writes(number: int) -> tuple[str, ...]:
    """Return changes in copied and uncopied chunks, and rows that move between them."""
    return (
        f"INSERT INTO shard.t (id, v) VALUES ({ROWS + number}, {number}), ({-number}, {number})",
        f"UPDATE shard.t SET v = v + {number} WHERE id % 7 = {number % 7}",
        f"DELETE FROM shard.t WHERE id % 101 = {number}",
        f"UPDATE shard.t SET id = id + 5000 WHERE id = {20 + number}",
        f"UPDATE shard.t SET id = {-1000 - number} WHERE id = {ROWS - 20 - number}",
        f"UPDATE shard.u SET v = v + 1 WHERE id % 5 = {number % 5}",
    )


def loaded(target: Database) -> set[tuple[object, ...]]:
    return set(
        target.query("SELECT number, source_file, source_pos FROM dm_meta.snapshot_chunk WHERE state = 1 AND shard = 0")
    )


class Crash(Exception):
    """The program ends at a moment."""


class Pause:
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
            raise Crash(moment)
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


def interrupted_run(rig: LaneRig, pause: Pause, source: Database, statements: tuple[str, ...], hold: str = "") -> Run:
    """Start a run and execute ``statements`` while it copies the fourth chunk. ``hold``: the next moment at which it is
    held; "": none."""
    run = rig.begin(rig.config)
    pause.reached()
    source.execute(*writes(1), *statements)
    if hold:
        pause.hold_next(hold)
    else:
        pause.release()
    return run
