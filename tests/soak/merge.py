"""Defines what a soak merges: tables of every kind at every source, the task file, and the check of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import pymysql
from pymysql.connections import Connection

from tests.soak.kinds import COUNTED_KEYS, Kind, Place, kinds_for
from tests.support.database import Database
from tests.support.judge import PartitionIds, Shard, Target, Verdict, compare

TASK = "soak"
META = "dm_meta"
SCHEMA = "soak_01"
ELSEWHERE = "elsewhere"
"""A schema at the sources that the task does not merge; writers use it too."""

_TABLES = 2
TARGET_SCHEMA = "soak"
_COLLATION = "utf8mb4_general_ci"  # text equality is the same on every server of a soak
# Small chunks make a snapshot long enough for faults, small batches split large transactions.
_CHUNK_ROWS = 200
_BATCH_ROWS = 4000
_LANES = 3


@dataclass(frozen=True, slots=True)
class Source:
    """One source server; ``number`` is its instance in the `partition id` mapping, from 1."""

    number: int
    name: str
    server: Database


@dataclass(frozen=True, slots=True)
class SoakTable:
    """One shard table."""

    kind: Kind
    place: Place
    source: Source

    @property
    def table(self) -> str:
        return f"{self.kind.name}_{self.place.table:02d}"

    @property
    def name(self) -> str:
        return f"`{SCHEMA}`.`{self.table}`"

    @property
    def connect(self) -> Callable[[], Connection]:
        return self.source.server.connect

    @property
    def ids(self) -> PartitionIds | None:
        return PartitionIds(self.place.source, 1, self.place.table) if self.kind.counted else None


@dataclass(frozen=True, slots=True)
class Judged:
    """One target table and the judge's verdict on it."""

    kind: Kind
    tables: tuple[SoakTable, ...]
    verdict: Verdict


class Merge:
    """All shard tables of a soak and the target into which they are merged."""

    def __init__(self, sources: Sequence[Source], target: Database) -> None:
        self._sources = tuple(sources)
        self._target = target
        self._kinds = kinds_for(target.flavor)
        self.tables = tuple(
            SoakTable(kind, Place(source.number, number), source)
            for source in sources
            for kind in self._kinds
            for number in range(1, _TABLES + 1)
        )

    def create(self, seed: int, rows: int) -> None:
        """Create and fill the tables: up to ``rows`` rows each, fewer where a kind holds few."""
        for source in self._sources:
            source.server.execute(f"CREATE DATABASE `{SCHEMA}`", f"CREATE DATABASE `{ELSEWHERE}`")
            source.server.execute(f"CREATE TABLE `{ELSEWHERE}`.noise (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)")
        for table in self.tables:
            rng = Random(f"{seed}/{table.source.name}/{table.table}")
            _create(table)
            _fill(table, rng, min(rows, table.kind.most * 2 // 3))

    def loaded_sources(self) -> int:
        """Return how many sources have a chunk at the target."""
        try:
            [(count,)] = self._target.query(
                f"SELECT COUNT(DISTINCT source) FROM `{META}`.snapshot_chunk WHERE task = '{TASK}' AND state = 1"
            )
        except pymysql.err.ProgrammingError:  # the table does not exist yet
            return 0
        assert isinstance(count, int)
        return count

    def verdicts(self) -> list[Judged]:
        """Return the verdict on every target table; the sources must be quiet and applied."""
        found: list[Judged] = []
        for kind in self._kinds:
            tables = tuple(table for table in self.tables if table.kind is kind)
            shards = [Shard(table.connect, SCHEMA, table.table, table.ids) for table in tables]
            target = Target(self._target.connect, TARGET_SCHEMA, kind.name)
            found.append(Judged(kind, tables, compare(shards, target, key=kind.key)))
        return found

    def task(self) -> str:
        """Return the task file."""
        lines = [
            f"name: {TASK}",
            "task-mode: all",
            f"meta-schema: {META}",
            f"target-database: {self._target.login}",
            f"snapshot: {{chunk-rows: {_CHUNK_ROWS}, threads: 2}}",
            f"replicate: {{lanes: {_LANES}, batch-rows: {_BATCH_ROWS}}}",
            "mysql-instances:",
        ]
        counted = [kind.name for kind in self._kinds if kind.counted]
        for source in self._sources:
            lines += [
                f"  - source-id: {source.name}",
                "    block-allow-list: shards",
                f"    route-rules: [{', '.join(kind.name for kind in self._kinds)}]",
                f"    column-mapping-rules: [{', '.join(f'{name}-{source.number}' for name in counted)}]",
            ]
        lines += ["block-allow-list:", '  shards: {do-dbs: ["soak_*"]}', "routes:"]
        for kind in self._kinds:
            lines.append(
                f'  {kind.name}: {{schema-pattern: "soak_*", table-pattern: "{kind.name}_*", '
                f"target-schema: {TARGET_SCHEMA}, target-table: {kind.name}}}"
            )
        lines.append("column-mappings:")
        for source in self._sources:
            for name in counted:
                lines += [
                    f"  {name}-{source.number}:",
                    f'    {{schema-pattern: "soak_*", table-pattern: "{name}_*", expression: partition id, '
                    f'source-column: id, target-column: id, arguments: ["{source.number}", "soak_", "{name}_"]}}',
                ]
        return "\n".join(lines) + "\n"


def insert_head(table: SoakTable, verb: str = "INSERT") -> str:
    return f"{verb} INTO {table.name} ({', '.join(f'`{name}`' for name in table.kind.columns)}) VALUES "


def marks(table: SoakTable) -> str:
    return f"({', '.join(table.kind.marks)})"


def _create(table: SoakTable) -> None:
    table.source.server.execute(
        f"CREATE TABLE {table.name} ({table.kind.definition}) "
        f"DEFAULT CHARSET=utf8mb4 COLLATE={_COLLATION} ENGINE=InnoDB"
    )


def _fill(table: SoakTable, rng: Random, rows: int) -> None:
    connection = table.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
            # Random text keys may be equal: such a row is left out, here and in the count.
            for start in range(0, rows, 500):
                batch = [table.kind.row(rng, table.place) for _ in range(min(500, rows - start))]
                values = [value for row in batch for value in row]
                head = insert_head(table, "INSERT IGNORE")
                cursor.execute(head + ", ".join([marks(table)] * len(batch)), values)
            if table.kind.counted:
                cursor.execute(f"ALTER TABLE {table.name} AUTO_INCREMENT = {COUNTED_KEYS}")
    finally:
        connection.close()
