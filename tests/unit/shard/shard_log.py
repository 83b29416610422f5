"""What happens at the sources of the small world of sharding DDLs: shard tables, their rows, their statements.

Each source has shard tables ``d.t0``, ``d.t1`` … of one target. A table's history is a row, a statement, a row, a
statement, a row …; a source's binlog is some interleaving of its tables' histories. Every row has a key of its own and
a value per column, so that a row that went another way than through the structure it was written in is another row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from proto import config_pb2
from tests.unit.ddl.join_model import COLLATION, text_of
from worker.ddl.clause import ClauseKind
from worker.ddl.creation import Creation
from worker.ddl.records import StatementPlace
from worker.ddl.statement import AlterTable, Ddl, parse_ddl
from worker.plan import TargetTable
from worker.position import RelayOffset, SourcePosition
from worker.relay.model import Statement
from worker.replicate.dealing import dealing_of
from worker.rules import Rules
from worker.table import Column, Table, ValueKind

SCHEMA, TASK = "d", "task"
TARGET = TargetTable("shop", "all")
CONFIG = config_pb2.SubTaskConfig(
    task=TASK,
    meta_schema="dm_meta",
    shard_mode=config_pb2.SHARD_MODE_PESSIMISTIC,
    routes=[config_pb2.RouteRule(name="r", schema_pattern=SCHEMA, target_schema="shop", target_table="all")],
)
RULES = Rules.from_config(CONFIG)
DEALING = dealing_of(CONFIG, 1, ())
FIRST = ("id",)
"""The columns before all statements."""


class BrokenRuleError(Exception):
    """A step broke an invariant."""


Columns = tuple[str, ...]
Image = tuple[tuple[str, int], ...]
"""A row as it is written to the binlog: names and values of its table's columns."""


class Key(NamedTuple):
    """Of a row, unique in the world: it is the ``at``-th of its table."""

    source: int
    table: int
    at: int


@dataclass(frozen=True, slots=True)
class RowEvent:
    """``level``: how many of the table's statements lie before it."""

    key: Key
    image: Image
    level: int

    @property
    def table(self) -> int:
        return self.key.table


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """``level``: how many of the table's statements lie before it."""

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
def creation_of(columns: Columns) -> Creation:
    """As a server prints a table of these columns."""
    return Creation(text_of(*(f"`{column}` bigint(20)" for column in columns), "PRIMARY KEY (`id`)"), COLLATION)


def columns_of(table: Table) -> Columns:
    return tuple(column.name for column in table.columns)


def altered(columns: Columns, ddl: Ddl) -> Columns:
    """What a server makes of a table. Raises BrokenRuleError where it would refuse the statement."""
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
    """``text``, of one table, at a server."""
    ddl = parse_ddl(text, SCHEMA, 0)
    assert ddl is not None
    return altered(columns, ddl)


def moved(image: Image, ddl: Ddl) -> Image:
    """A row that lies at a server while ``ddl`` runs: a column that comes is 0."""
    values = dict(image)
    return tuple((column, values.get(column, 0)) for column in altered(tuple(values), ddl))


def place_of(at: int) -> SourcePosition:
    return SourcePosition("bin.000001", at, "", "server")


def offset_of(at: int) -> RelayOffset:
    return RelayOffset(1, at)


def statement_of(table: int, clauses: str, at: int) -> Statement:
    """The event group ``at`` of the binlog."""
    begin = offset_of(at)
    text = f"ALTER TABLE {name_of(table)} {clauses}"
    return Statement(begin, begin, offset_of(at + 1), place_of(at), SCHEMA, text, 0)


def at_of(place: StatementPlace) -> int:
    return place.position.pos


ALL = frozenset({0, 1, 2})
"""Levels of a table with two statements."""


class History(NamedTuple):
    """Of one source: ``statements``: the clauses of each table's ALTER TABLEs; ``order``: whose event is the next, by
    table; ``rows``: at which levels a table has a row, of all."""

    statements: tuple[tuple[str, ...], ...]
    order: tuple[int, ...]
    rows: frozenset[int] = ALL


def binlog(source: int, history: History) -> tuple[Event, ...]:
    """All of a source's events."""
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
    """None: a row."""
    for level in range(len(statements) + 1):
        if level in rows:
            yield None
        if level < len(statements):
            yield statements[level]


def at_target(event: RowEvent, level: int, log: Sequence[Event]) -> Image:
    """The row at the end, written to a table over which ``level`` statements had run: the others run over it."""
    image = event.image
    for later in log:
        if isinstance(later, DdlEvent) and later.table == event.table and later.level >= level:
            image = moved(image, later.ddl)
    return image


def merged(log: Sequence[Event]) -> frozenset[tuple[Key, Image]]:
    """The rows of a source's shard tables at the end: what the target is to hold of them (I1)."""
    return frozenset((event.key, at_target(event, event.level, log)) for event in log if isinstance(event, RowEvent))
