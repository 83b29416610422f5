"""Defines the events at the sources of the sharding DDL model: shard tables, their rows, their statements.

Each source has shard tables ``d.t0``, ``d.t1`` … of one target. A table's history is a row, a statement, a row, a
statement, a row …; a source's binlog is an interleaving of its tables' histories. Every row has a key of its own and a
value per column, so that a row that was processed with the wrong structure differs from the correct row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl, parse_ddl
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.records.ddl_progress import StatementPlace
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
DEALING = partitioning_for(CONFIG, 1, ())
FIRST = ("id",)
"""The columns before all statements."""


class BrokenRuleError(Exception):
    """A step has violated an invariant."""


Columns = tuple[str, ...]
Image = tuple[tuple[str, int], ...]
"""A row in the binlog: names and values of its table's columns."""


class Key(NamedTuple):
    """Key of a row, unique in the model: it is the ``at``-th of its table."""

    source: int
    table: int
    at: int


@dataclass(frozen=True, slots=True)
class RowEvent:
    """A row in the binlog. ``level``: how many of the table's statements precede it."""

    key: Key
    image: Image
    level: int

    @property
    def table(self) -> int:
        return self.key.table


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """A statement in the binlog. ``level``: how many of the table's statements precede it."""

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


@lru_cache(None)
def run_at(columns: Columns, text: str) -> Columns:
    """Return the columns after a server has executed ``text``, which changes one table."""
    ddl = parse_ddl(text, SCHEMA, 0)
    assert ddl is not None
    return altered(columns, ddl)


def moved(image: Image, ddl: Ddl) -> Image:
    """Return a row after ``ddl`` has run at the server that holds it: the value of an added column is 0."""
    values = dict(image)
    return tuple((column, values.get(column, 0)) for column in altered(tuple(values), ddl))


def place_of(at: int) -> SourcePosition:
    return SourcePosition("bin.000001", at, "", "server")


def offset_of(at: int) -> RelayOffset:
    return RelayOffset(1, at)


def statement_of(table: int, clauses: str, at: int) -> Statement:
    """Return the event group ``at`` of the binlog."""
    begin = offset_of(at)
    text = f"ALTER TABLE {name_of(table)} {clauses}"
    return Statement(begin, begin, offset_of(at + 1), place_of(at), SCHEMA, text, 0)


def at_of(place: StatementPlace) -> int:
    return place.position.pos


ALL = frozenset({0, 1, 2})
"""All levels of a table with two statements."""


class History(NamedTuple):
    """History of one source. ``statements``: the clauses of each table's ALTER TABLEs; ``order``: the table of each
    next event; ``rows``: the levels at which every table has a row."""

    statements: tuple[tuple[str, ...], ...]
    order: tuple[int, ...]
    rows: frozenset[int] = ALL


def binlog(source: int, history: History) -> tuple[Event, ...]:
    """Return all of a source's events."""
    ways = [_table_events(history.statements[t], history.rows) for t in range(len(history.statements))]
    found: list[Event] = []
    columns: list[Columns] = [FIRST for _ in ways]
    levels = [0 for _ in ways]
    for at, table in enumerate(history.order):
        clauses = next(ways[table])
        if clauses is None:
            key = Key(source, table, levels[table])
            value = 1000 * source + 100 * table + 10 * levels[table]
            image = tuple((name, value + number) for number, name in enumerate(columns[table], 1))
            found.append(RowEvent(key, image, levels[table]))
        else:
            statement = statement_of(table, clauses, at)
            ddl = parse_ddl(statement.text, SCHEMA, 0)
            assert ddl is not None
            found.append(DdlEvent(table, statement, ddl, levels[table]))
            columns[table] = altered(columns[table], ddl)
            levels[table] += 1
    assert all(next(way, "") == "" for way in ways), "an order holds each event of each table once"
    return tuple(found)


def _table_events(statements: Sequence[str], rows: frozenset[int]) -> Iterator[str | None]:
    """Generate the events of a table: the clauses of a statement, or None for a row."""
    for level in range(len(statements) + 1):
        if level in rows:
            yield None
        if level < len(statements):
            yield statements[level]


def at_target(event: RowEvent, level: int, log: Sequence[Event]) -> Image:
    """Return the final state of a row that was written after ``level`` statements: the later ones run over it."""
    image = event.image
    for later in log:
        if isinstance(later, DdlEvent) and later.table == event.table and later.level >= level:
            image = moved(image, later.ddl)
    return image


def merged(log: Sequence[Event]) -> frozenset[tuple[Key, Image]]:
    """Return the final rows of a source's shard tables: the target must hold exactly these (I1)."""
    return frozenset((event.key, at_target(event, event.level, log)) for event in log if isinstance(event, RowEvent))
