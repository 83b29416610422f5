"""Tables with rows, and what an ALTER TABLE makes of them: a small server for tests of shard tables that change."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from decimal import Decimal

from shardmerge.worker.ddl.sql.column_definition import ColumnDefinition
from shardmerge.worker.ddl.sql.common_type import INTEGERS, ColumnType
from shardmerge.worker.ddl.sql.table_definition import TableDefinition
from tests.unit.worker.ddl.schema_join.join_model import altered, shape_of

Value = int | Decimal | str | None
Row = dict[str, Value]


def limits(kind: ColumnType) -> tuple[int, int]:
    bits = (8, 16, 24, 32, 64)[INTEGERS.index(kind.base)]
    return (0, 2**bits - 1) if kind.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def most_letters(kind: ColumnType) -> int:
    return kind.length or {"tinytext": 63, "text": 16383}[kind.base]


def most_decimal(kind: ColumnType) -> Decimal:
    digits, scale = map(int, kind.arguments)
    return Decimal(10**digits - 1).scaleb(-scale)


def squeezed(value: Value, column: ColumnDefinition) -> Value:
    """What a server that is not strict makes of a value."""
    kind = column.type
    if value is None:
        return None if column.nullable else implied(column)
    if isinstance(value, int):
        low, high = limits(kind)
        return min(max(value, low), high)
    if isinstance(value, Decimal):
        most = most_decimal(kind)
        return min(max(round(value, int(kind.arguments[1])), -most), most)
    cut = value[: most_letters(kind)]
    return cut.rstrip(" ") if kind.base == "char" else cut


def fits(value: Value, column: ColumnDefinition) -> bool:
    """Whether a strict server takes it: it rounds DECIMALs without a word, and cuts spaces."""
    found = squeezed(value, column)
    if isinstance(value, Decimal):
        return abs(value) <= most_decimal(column.type)
    return found == (value.rstrip(" ") if isinstance(value, str) and isinstance(found, str) else value) or (
        isinstance(value, str) and isinstance(found, str) and value.rstrip(" ") == found.rstrip(" ")
    )


def implied(column: ColumnDefinition) -> Value:
    if column.type.base in INTEGERS:
        return 0
    return Decimal(0) if column.type.base == "decimal" else ""


def default_of(column: ColumnDefinition) -> Value:
    """For rows that are there when it is added, or come without it."""
    if column.default == "NULL":
        return None
    if not column.default:
        return implied(column)
    return Decimal(column.default) if column.type.base == "decimal" else int(column.default)


def drawn_value(dice: random.Random, column: ColumnDefinition) -> Value:
    if column.nullable and dice.random() < 0.2:
        return None
    if column.type.base in INTEGERS:
        return dice.choice([*limits(column.type), 0, 1])
    if column.type.base == "decimal":
        most = most_decimal(column.type)
        return dice.choice([most, -most, Decimal(0)])
    value = dice.choice(["", "x", "y" * most_letters(column.type), "z "[: most_letters(column.type)]])
    return value.rstrip(" ") if column.type.base == "char" else value


@dataclass(slots=True)
class Model:
    """A table with its rows, by id."""

    items: tuple[str, ...]
    rows: dict[int, Row] = field(default_factory=dict[int, Row])
    dropped: frozenset[str] = frozenset()

    @property
    def shape(self) -> TableDefinition:
        return shape_of(*self.items)

    def alter(self, clauses: tuple[str, ...], *, strict: bool) -> bool:
        """Whether it was done."""
        before, items = self.shape, altered(self.items, clauses)
        after = shape_of(*items)
        rows: dict[int, Row] = {}
        for number, row in self.rows.items():
            rows[number] = made = {}
            for column in after.columns:
                if column.key == "id":
                    continue
                value = row[column.key] if before.column(column.key) else default_of(column)
                if strict and not fits(value, column):
                    return False
                made[column.key] = squeezed(value, column)
        self.items, self.rows = items, rows
        return True
