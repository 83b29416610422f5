"""Defines the binlogs of the simulator's sources: shard tables, their rows, their statements.

Each source has shard tables ``d.t0``, ``d.t1`` … of one target. All shard tables execute the same ALTER TABLEs in the
same order; how many of them a table has executed is its level. Every value depends on the event that writes it, so
that a row that was processed with the wrong structure, twice or in the wrong order differs from the correct row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl, parse_ddl
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.records.partitioning import partitioning_for
from tests.unit.worker.ddl.schema_join.join_model import COLLATION, text_of

SCHEMA, TASK = "d", "task"
TARGET = TargetTable("shop", "all")
CONFIG = config_pb2.SubTaskConfig(
    task=TASK,
    meta_schema="dm_meta",
    shard_mode=config_pb2.SHARD_MODE_PESSIMISTIC,
    routes=[config_pb2.RouteRule(name="r", schema_pattern=SCHEMA, target_schema="shop", target_table="all")],
)
RULES = Rules.from_config(CONFIG)
DEALING = {lanes: partitioning_for(CONFIG, lanes, ()) for lanes in (1, 2)}
"""The partitioning of streams without tables, by number of lanes."""


class BrokenRuleError(Exception):
    """A step has violated an invariant."""


Columns = tuple[str, ...]
Image = tuple[tuple[str, int], ...]
"""A row in the binlog: names and values of its table's columns."""
FIRST: Columns = ("id",)
"""The columns before all statements."""


class Structure(NamedTuple):
    """A shard table as it is recorded."""

    name: str
    columns: Columns


class Key(NamedTuple):
    """Key of a row: it is the ``at``-th of ``table``, which is the number of a CREATE TABLE of its source."""

    source: int
    table: int
    at: int


@dataclass(frozen=True, slots=True)
class RowEvent:
    """A row in the binlog. ``name``: of its table there. ``level``: how many ALTERs of the table precede it.
    ``follows``: the number of the event before that has written this row; None: it is inserted. ``image``: None: it is
    deleted."""

    name: str
    key: Key
    image: Image | None
    level: int
    columns: Columns
    follows: int | None = None

    @property
    def table(self) -> int:
        return self.key.table


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """A statement in the binlog. ``table``: the table that it alters; -1 for other statements. ``level``: how many of
    the table's ALTERs precede it."""

    table: int
    statement: Statement
    ddl: Ddl
    level: int


Event = RowEvent | DdlEvent


def name_of(table: int) -> str:
    return f"t{table}"


@cache
def table_of(name: str, columns: Columns) -> Table:
    made = tuple(Column(column, ValueKind.INTEGER, "bigint(20)", nullable=column != "id") for column in columns)
    return Table(SCHEMA, name, made, (0,), "PRIMARY", (), False, "InnoDB")


@cache
def creation_of(columns: Columns) -> CreateStatement:
    """Return the CREATE TABLE that a server prints for a table of these columns."""
    return CreateStatement(text_of(*(f"`{column}` bigint(20)" for column in columns), "PRIMARY KEY (`id`)"), COLLATION)


def columns_of(table: Table) -> Columns:
    return tuple(column.name for column in table.columns)


def altered(columns: Columns, ddl: Ddl) -> Columns:
    """Return the columns after the statement. Raises BrokenRuleError where a server would refuse the statement."""
    assert isinstance(ddl, AlterTable)
    found = list(columns)
    for clause in ddl.clauses:
        match clause.kind:
            case ClauseKind.ADD_COLUMN:
                _expect(clause.columns, not set(clause.columns) & set(found))
                found += clause.columns
            case ClauseKind.DROP_COLUMN:
                _expect(clause.columns, set(clause.columns) <= set(found))
                found = [each for each in found if each not in clause.columns]
            case ClauseKind.MODIFY_COLUMN:
                _expect(clause.columns, set(clause.columns) <= set(found))
            case _:
                raise AssertionError(f"{clause.kind} is unknown to this server")
    return tuple(found)


def _expect(columns: Columns, holds: bool) -> None:
    if not holds:
        raise BrokenRuleError(f"a server refuses a statement about {columns}")


@lru_cache(4096)
def parsed(text: str) -> Ddl:
    ddl = parse_ddl(text, SCHEMA, 0)
    assert ddl is not None
    return ddl


@lru_cache(4096)
def run_at(columns: Columns, text: str) -> Columns:
    """Return the columns after a server has executed ``text``, which changes one table."""
    return altered(columns, parsed(text))


def moved(image: Image, ddl: Ddl) -> Image:
    """Return a row after ``ddl`` has run at the server that holds it: the value of an added column is 0."""
    values = dict(image)
    return tuple((column, values.get(column, 0)) for column in altered(tuple(values), ddl))


@lru_cache(4096)
def at_target(image: Image, columns: Columns, texts: tuple[str, ...]) -> Image:
    """Return a row that was written to a target with these columns, after ``texts`` have run there."""
    values = dict(image)
    found = tuple((column, values.get(column, 0)) for column in columns)
    for text in texts:
        found = moved(found, parsed(text))
    return tuple(sorted(found))


def place_of(at: int) -> SourcePosition:
    return SourcePosition("bin.000001", at, "", "server")


def offset_of(at: int) -> RelayOffset:
    return RelayOffset(1, at)


ActionKind = Literal["insert", "update", "delete", "alter", "create", "like", "drop", "truncate", "rename", "swap"]


class Action(NamedTuple):
    """What a client does at a source. ``name``: of a table; ``other``: a second table; ``at``: which of its rows.
    Actions that a server would refuse are left out of the binlog, so any of them can be removed from a history."""

    kind: ActionKind
    name: str
    other: str = ""
    at: int = 0


@dataclass(slots=True)
class _Shard:
    """A shard table at its source. ``rows``: the images by key, and the events that have written them."""

    number: int
    columns: Columns = FIRST
    level: int = 0
    inserts: int = 0
    rows: dict[Key, tuple[Image, int]] = field(default_factory=dict[Key, tuple[Image, int]])


class SourceServer:
    """A source that executes actions and writes ``log``. ``script``: the clauses of the ALTER TABLEs of each table."""

    def __init__(self, source: int, tables: int, script: Sequence[str]) -> None:
        self.source, self.script = source, script
        self.log: list[Event] = []
        self.shards = {name_of(number): _Shard(number) for number in range(tables)}
        self._made = tables

    def execute(self, action: Action) -> None:
        shard = self.shards.get(action.name)
        match action.kind:
            case "insert" | "update" | "delete" if shard is not None:
                self._write(action, shard)
            case "alter" if shard is not None and shard.level < len(self.script):
                ddl = self._log(f"ALTER TABLE {action.name} {self.script[shard.level]}", shard)
                shard.columns = altered(shard.columns, ddl)
                shard.rows = {key: (moved(image, ddl), at) for key, (image, at) in shard.rows.items()}
                shard.level += 1
            case "create" if shard is None and any(not each.level for each in self.shards.values()):
                self._create(action.name, "(id BIGINT PRIMARY KEY)", _Shard(self._made))
            case "like" if shard is None and (like := self.shards.get(action.other)) is not None:
                self._create(action.name, f"LIKE {action.other}", _Shard(self._made, like.columns, like.level))
            case "drop" if shard is not None and len(self.shards) > 1:
                self._log(f"DROP TABLE {action.name}")
                del self.shards[action.name]
            case "truncate" if shard is not None:
                self._log(f"TRUNCATE TABLE {action.name}")
                shard.rows = {}
            case "rename" if shard is not None and action.other not in self.shards:
                self._log(f"RENAME TABLE {action.name} TO {action.other}")
                self.shards[action.other] = self.shards.pop(action.name)
            case "swap" if shard is not None and action.other in self.shards and action.other != action.name:
                one, two = action.name, action.other
                self._log(f"RENAME TABLE {one} TO tmp, {two} TO {one}, tmp TO {two}")
                self.shards[one], self.shards[two] = self.shards[two], self.shards[one]
            case _:
                pass

    def rows(self) -> dict[Key, Image]:
        """Return the rows of all its shard tables: the target must hold these (I1)."""
        return {key: tuple(sorted(image)) for shard in self.shards.values() for key, (image, _) in shard.rows.items()}

    def levels(self) -> dict[str, int]:
        return {name: shard.level for name, shard in self.shards.items()}

    def _write(self, action: Action, shard: _Shard) -> None:
        at, follows = len(self.log), None
        if action.kind == "insert":
            key = Key(self.source, shard.number, shard.inserts)
            shard.inserts += 1
        elif shard.rows:
            key = list(shard.rows)[action.at % len(shard.rows)]
            follows = shard.rows[key][1]
        else:
            return
        value = 1000 * (self.source + 1) + 10 * at
        image = tuple((name, value + number) for number, name in enumerate(shard.columns))
        if action.kind == "delete":
            del shard.rows[key]
        else:
            shard.rows[key] = image, at
        written = None if action.kind == "delete" else image
        self.log.append(RowEvent(action.name, key, written, shard.level, shard.columns, follows))

    def _create(self, name: str, what: str, shard: _Shard) -> None:
        self._log(f"CREATE TABLE {name} {what}")
        self.shards[name] = shard
        self._made += 1

    def _log(self, text: str, alters: _Shard | None = None) -> Ddl:
        """Write the event group of a statement; returns the statement."""
        at = len(self.log)
        begin, ddl = offset_of(at), parsed(text)
        statement = Statement(begin, begin, offset_of(at + 1), place_of(at), SCHEMA, text, 0)
        number, level = (alters.number, alters.level) if alters is not None else (-1, 0)
        self.log.append(DdlEvent(number, statement, ddl, level))
        return ddl


ALL = frozenset({0, 1, 2})
"""All levels of a table with two statements."""


class History(NamedTuple):
    """History of one source with a fixed order. ``statements``: the clauses of each table's ALTER TABLEs; ``order``:
    the table of each next event: they alternate between a row and a statement; ``rows``: the levels at which every
    table has a row."""

    statements: tuple[tuple[str, ...], ...]
    order: tuple[int, ...]
    rows: frozenset[int] = ALL


def executed(source: int, history: History) -> SourceServer:
    """Return the source after its history."""
    tables = len(history.statements)
    server = SourceServer(source, tables, history.statements[0])
    ways = [_kinds(history.statements[table], history.rows) for table in range(tables)]
    for table in history.order:
        server.execute(Action(next(ways[table]), name_of(table)))
    assert all(next(way, None) is None for way in ways), "an order holds each event of each table once"
    return server


def _kinds(statements: Sequence[str], rows: frozenset[int]) -> Iterator[Literal["insert", "alter"]]:
    for level in range(len(statements) + 1):
        if level in rows:
            yield "insert"
        if level < len(statements):
            yield "alter"
