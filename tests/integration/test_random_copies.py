"""Tests copies of tables under random writes, random DDL and crashes at random moments: the target equals the source.

Each seed is one copy; SHARDMERGE_RANDOM_COPIES sets how many there are.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, failpoints
from shardmerge.proto.process.periodic import Backoff
from shardmerge.worker.target.tables import deferred_index, index_adder
from tests.integration.lane_rig import LaneRig, Run, has_joined
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

SEEDS = int(os.environ.get("SHARDMERGE_RANDOM_COPIES", "5"))
TABLES = ("t0", "t1", "t2", "t3")
ROWS = 600
MOMENTS = (
    "snapshot.before_commit",
    "snapshot.after_commit",
    "snapshot.planning",
    "handover",
    "ddl.before",
    "ddl.before_passing",
    "ddl.passing",
    "ddl.passed",
    "copy.before_completed",
    "copy.completed",
    "replay.beginning",
    "replay.begun",
    "join.before_adopting",
    "join.adopting",
    "join.adopted",
    "lane0.before_commit",
)


class _Crash(Exception):
    """The program ends at a moment."""


class _Crashes:
    """Lets threads of the program fail at random moments, while there are crashes left. Slows the copy down."""

    def __init__(self, rng: random.Random, left: int, pace: float) -> None:
        self._rng, self.left, self._pace = rng, left, pace
        self._lock = threading.Lock()
        self.happened = threading.Event()
        self.log: list[str] = []

    def hit(self, moment: str) -> None:
        if moment == "snapshot.before_commit":
            threading.Event().wait(self._pace)
        if moment not in MOMENTS:
            return
        with self._lock:
            often = 0.02 if moment.startswith(("snapshot", "lane0")) else 0.15
            if self.left == 0 or self._rng.random() > often:
                return
            self.left -= 1
            self.log.append(moment)
            self.happened.set()
        raise _Crash(moment)


class _Application:
    """Draws statements of an application and of its operators for the source."""

    def __init__(self, rng: random.Random, *, mode: str) -> None:
        self._rng, self._mode = rng, mode
        self._next = 0
        self.columns = {table: ["v", "w"] for table in TABLES}
        self.online = False

    def writes(self) -> list[str]:
        return [self._write(self._rng.choice(TABLES)) for _ in range(self._rng.randrange(1, 5))]

    def _write(self, table: str) -> str:
        rng, base = self._rng, self.base_of(table)
        number = rng.randrange(ROWS)
        match rng.randrange(6):
            case 0:
                self._next += 1
                return f"INSERT INTO shard.{table} (id) VALUES ({base + 10 * ROWS + self._next})"
            case 1:
                self._next += 1
                return f"INSERT INTO shard.{table} (id) VALUES ({base - self._next})"
            case 2:
                return f"DELETE FROM shard.{table} WHERE id % 53 = {number % 53}"
            case 3:
                self._next += 1
                return f"UPDATE shard.{table} SET id = {base + 20 * ROWS + self._next} WHERE id = {base + number}"
            case 4:
                self._next += 1
                return f"UPDATE shard.{table} SET id = {base - 5000 - self._next} WHERE id = {base + number}"
            case _:
                column = rng.choice(self.columns[table] or ["id"])
                change = f"id = id + {30 * ROWS}" if column == "id" else f"{column} = id % 7"
                return f"UPDATE shard.{table} SET {change} WHERE id % 11 = {number % 11}"

    @staticmethod
    def base_of(table: str) -> int:
        return (TABLES.index(table) + 1) * 10_000_000

    def ddl(self) -> list[str]:
        rng, table = self._rng, self._rng.choice(TABLES)
        columns, name = self.columns[table], f"shard.{table}"
        self._next += 1
        kinds = ["add", "add", "index", "modify"]
        if self._mode == "none":
            kinds += ["drop", "change", "truncate", "recreate", "gh-ost", "two", "drop key"]
        match rng.choice(kinds):
            case "add":
                columns.append(f"c{self._next}")
                place = rng.choice(["", " FIRST", " AFTER id"])
                return [f"ALTER TABLE {name} ADD COLUMN c{self._next} INT NULL{place}"]
            case "drop" if columns:
                column = columns.pop(rng.randrange(len(columns)))
                return [f"ALTER TABLE {name} DROP COLUMN {column}"]
            case "change" if columns:
                column = columns.pop(rng.randrange(len(columns)))
                columns.append(f"c{self._next}")
                return [f"ALTER TABLE {name} CHANGE {column} c{self._next} BIGINT"]
            case "modify" if columns:
                return [f"ALTER TABLE {name} MODIFY {rng.choice(columns)} BIGINT"]
            case "truncate":
                return [f"TRUNCATE TABLE {name}"]
            case "recreate":
                self.columns[table] = ["v", "w"]
                return [f"DROP TABLE {name}", f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v INT, w INT)"]
            case "gh-ost":
                columns.append(f"c{self._next}")
                return [
                    f"CREATE TABLE shard._{table}_gho LIKE {name}",
                    f"ALTER TABLE shard._{table}_gho ADD COLUMN c{self._next} INT",
                    f"INSERT INTO shard._{table}_gho SELECT *, 5 FROM {name}",
                    f"UPDATE shard._{table}_gho SET c{self._next} = NULL",
                    f"RENAME TABLE {name} TO shard._{table}_del, shard._{table}_gho TO {name}",
                    f"DROP TABLE shard._{table}_del",
                ]
            case "two" if columns:
                column = columns.pop(rng.randrange(len(columns)))
                columns.append(f"c{self._next}")
                return [f"ALTER TABLE {name} DROP COLUMN {column}, ADD COLUMN c{self._next} INT NOT NULL DEFAULT 4"]
            case "drop key":
                return [f"ALTER TABLE {name} DROP PRIMARY KEY, ADD PRIMARY KEY (id)"]
            case _:
                return [f"CREATE INDEX i{self._next} ON {name} (id)"]


def _config(target: Database, rng: random.Random, mode: str) -> config_pb2.SubTaskConfig:
    config = subtask_config(
        target,
        threads=rng.choice([1, 2]),
        chunk_rows=rng.choice([60, 150, 1000]),
        position=rng.choice(["auto", "watermark"]),
    )
    config.load.defer_indexes = rng.random() < 0.5
    config.replicate.lanes = rng.choice([1, 2, 3])
    config.online_ddl.shadow_tables.append("^_(.+)_gho$")
    config.online_ddl.trash_tables.append("^_(.+)_del$")
    if mode == "optimistic":
        config.shard_mode = config_pb2.SHARD_MODE_OPTIMISTIC
        config.routes.add(schema_pattern="shard", table_pattern="t*", target_schema="merged", target_table="t")
    return config


@pytest.mark.turns
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("mode", ["none", "optimistic"])
def test_a_random_copy(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, seed: int
) -> None:
    rng = random.Random(f"{mode}/{seed}")
    monkeypatch.setattr(deferred_index, "DEFER_FROM_ROWS", 10)
    monkeypatch.setattr(index_adder, "_LOOK_SECONDS", 0.5)
    monkeypatch.setattr(index_adder, "_BACKOFF", Backoff(1.0))
    target.execute("DROP DATABASE IF EXISTS merged")
    make_tables(
        source,
        *(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v INT, w INT, KEY k (w, id))" for table in TABLES),
        *(
            f"INSERT INTO {table} SELECT {_Application.base_of(table)} + seq, seq, seq FROM seq_1_to_{ROWS}"
            for table in TABLES
        ),
        f"ANALYZE TABLE {', '.join(TABLES)}",
    )
    application = _Application(rng, mode=mode)
    crashes = _Crashes(random.Random(f"crash/{seed}"), rng.randrange(4), rng.choice([0.02, 0.05, 0.1]))
    monkeypatch.setattr(failpoints, "hit", crashes.hit)
    done: list[str] = []
    with LaneRig(source, target, tmp_path, _config(target, rng, mode)) as rig:
        run = rig.begin(rig.config)
        # An online schema change that began before the task has no ALTER that the task could read.
        until(lambda: run.unit is not None or run.ended, "the copy has begun")
        for _ in range(rng.randrange(4, 14)):
            statements = [
                *application.writes(),
                *(application.ddl() if rng.random() < 0.5 else []),
                *application.writes(),
            ]
            done += statements
            source.execute(*statements)
            threading.Event().wait(rng.choice([0.0, 0.1, 0.4]))
            run = _after_crash(rig, run, crashes)
        crashes.left = 0

        def settled() -> bool:
            nonlocal run
            run = _after_crash(rig, run, crashes)
            assert not run.ended, (run.join(), crashes.log)
            return has_joined(run, target)

        until(settled, "everything is copied and applied", 120)
        until(lambda: not target.query("SELECT 1 FROM dm_meta.deferred_index"), "the indexes are added", 60)
        run.stop()
    print("\n".join(done), crashes.log)
    _compare(source, target, application, mode)


def _after_crash(rig: LaneRig, run: Run, crashes: _Crashes) -> Run:
    if not crashes.happened.is_set():
        return run
    crashes.happened.clear()
    run.stop()
    return rig.begin(rig.config)


def _compare(source: Database, target: Database, application: _Application, mode: str) -> None:
    for table in TABLES:
        columns = ", ".join(["id", *application.columns[table]])
        wanted = source.query(f"SELECT {columns} FROM shard.{table} ORDER BY id")
        base = _Application.base_of(table)
        where = (
            "shard." + table
            if mode == "none"
            else f"merged.t WHERE id BETWEEN {base - 5_000_000} AND {base + 4_999_999}"
        )
        assert target.query(f"SELECT {columns} FROM {where} ORDER BY id") == wanted, table
        if mode == "none":
            assert _indexes(target, table) == _indexes(source, table)


def _indexes(server: Database, table: str) -> set[tuple[object, ...]]:
    return {(row[2], row[3], row[4]) for row in server.query(f"SHOW INDEX FROM shard.{table}")}
