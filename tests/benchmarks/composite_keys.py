"""Compares commits of a lane that delete one row of a large table: a key with an extracted column, and one of an id.

The lane's writer commits in this process, without a worker: what differs is the target's time for the statement.
"""

from __future__ import annotations

import random
import statistics
import time
from contextlib import closing
from dataclasses import dataclass

from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.mysql.connection import Session, Side, connect
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan
from shardmerge.worker.replicate.lane.target_writer import TargetWriter
from shardmerge.worker.target.apply.target_session import ApplySettings
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.schema import ensure_meta
from tests.benchmarks.servers import endpoint
from tests.benchmarks.task import BenchmarkFailed
from tests.benchmarks.world import World, say

_META = "dm_meta_keys"
_WHO = SubtaskKey(_META, "keys", "benchmark")
_FILE = "mysql-bin.000001"
_PART = 5_000
_ROUNDS = 5
_CITIES = ("aachen", "münchen", "köln")
KEYS = {"single": ("id",), "composite": ("id", "city")}
"""The key's columns, by the table's name."""


@dataclass(frozen=True, slots=True)
class Commits:
    """``delete_ms``: the median commit of one deleted row; ``batch_ms``: of a commit of 1,000, the median."""

    delete_ms: float
    batch_ms: float


def run(world: World) -> dict[str, Commits]:
    """Measure both tables in turns, which have a row for each row of the settings."""
    settings, target = world.settings, world.target
    rows = settings.all_rows
    say(f"composite keys: two tables of {rows:,} rows")
    target.execute("DROP DATABASE IF EXISTS composite_keys", "CREATE DATABASE composite_keys")
    for name, key in KEYS.items():
        target.execute(
            f"CREATE TABLE composite_keys.{name} (id BIGINT NOT NULL, k INT NOT NULL, c CHAR(120) NOT NULL, "
            f"city VARCHAR(32) NOT NULL, PRIMARY KEY ({', '.join(key)}), KEY k_1 (k)) "
            "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"
        )
        for start in range(0, rows, _PART):
            values = ", ".join(f"({n}, {n * 7 % rows}, 'row {n}', '{_city(n)}')" for n in range(start, start + _PART))
            target.execute(f"INSERT INTO composite_keys.{name} VALUES {values}")
        target.query(f"ANALYZE TABLE composite_keys.{name}")
    lane = _Lane(world)
    singles: dict[str, list[float]] = {name: [] for name in KEYS}
    batches: dict[str, list[float]] = {name: [] for name in KEYS}
    picked = random.Random(3).sample(range(rows // _PART * _PART), _ROUNDS * 1_000 + settings.probes)
    with closing(lane):
        for number in picked[_ROUNDS * 1_000 :]:
            for name in KEYS:
                singles[name].append(lane.delete(name, [number]))
        for part in range(_ROUNDS):
            for name in KEYS:
                batches[name].append(lane.delete(name, picked[part * 1_000 : (part + 1) * 1_000]))
    for name in KEYS:
        [(left,)] = target.query(f"SELECT COUNT(*) FROM composite_keys.{name}")
        if int(str(left)) != -(-rows // _PART) * _PART - len(picked):
            raise BenchmarkFailed(f"{left} rows are left in {name}")
    return {
        name: Commits(statistics.median(singles[name]) * 1000, statistics.median(batches[name]) * 1000) for name in KEYS
    }


def _city(number: int) -> str:
    return _CITIES[number % len(_CITIES)]


class _Lane:
    """The writer of one lane, and the plans of both tables."""

    def __init__(self, world: World) -> None:
        where = endpoint(world.target)
        session = connect(where, Side.TARGET, name="target")
        with closing(session):
            session.cursor().execute(f"DROP DATABASE IF EXISTS {_META}")
            ensure_meta(session, _META)
            self._plans = {name: _plan(number, name, session) for number, name in enumerate(KEYS)}
            subtask_record.take_over(session, _WHO, lambda _: 1, "")
            start = SourcePosition(_FILE, 4)
            first = (Checkpoint(0, 1, 0, "relay", RelayOffset(1, 4), 0, start, 0.0),)
            subtask_record.begin(
                session,
                _WHO,
                1,
                subtask_record.Phase.REPLICATE,
                start,
                tuple(plan.table for plan in self._plans.values()),
                lambda inner: checkpoints.insert(inner, _WHO, first),
            )
        settings = ApplySettings(_WHO[1], _WHO[2], _META, where, safe_mode=False)
        self._writer = TargetWriter(settings, 0, 1)
        self._at = self._writer.read_checkpoint()

    def close(self) -> None:
        self._writer.close()

    def delete(self, name: str, numbers: list[int]) -> float:
        """Commit the deletion of the rows; return the seconds."""
        batch = Batch(0, 1, _FILE)
        for number in numbers:
            text = f"{number},'{_city(number)}'" if len(KEYS[name]) > 1 else f"{number}"
            batch.remove(self._plans[name], text.encode(), 100)
        end = RelayOffset(1, self._at.offset.byte + 100)
        following = self._at.moved(end, 0, SourcePosition(_FILE, 100), 0.0)
        started = time.perf_counter()
        self._writer.commit(batch, following)
        seconds = time.perf_counter() - started
        self._at = following
        return seconds


def _plan(number: int, name: str, session: Session) -> TablePlan:
    table = read_table(session, "composite_keys", name)
    assert table is not None
    columns = tuple(ColumnPlan(index, column, column.name) for index, column in enumerate(table.columns))
    return TablePlan(number, "benchmark", table, "composite_keys", name, columns, table.key)
