"""The option ``where``: comparisons of columns with values, joined by AND. Pure, but for the Arrow arrays.

The servers evaluate the comparisons on the rows that they have, and each returned row is compared once more: the rows
that were changed after the position are returned without regard to the servers' answers. So a comparison must have the
same meaning on both sides: of numbers, dates and times, but not of text, which a server compares by its collation.

Spark's own push-down of filters to Python data sources is not used: with Spark 4.3 all queries of one DataFrame share
the filters of the first one that was planned with filters, and lack rows (PythonDataSourceV2.readInfo).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan
from shardmerge.worker.datasource.arrow_library import pa, pc

_NAME = r"`(?P<quoted>[^`]+)`|(?P<name>[A-Za-z_][A-Za-z0-9_$]*)"
_VALUE = r"(?P<number>-?\d+(?:\.\d+)?)|'(?P<text>[0-9 :.-]+)'"
_COMPARISON = re.compile(rf"\s*(?:{_NAME})\s*(?P<sign>>=|<=|=|>|<)\s*(?:{_VALUE})\s*", re.ASCII)
_AND = re.compile(r"AND\b", re.IGNORECASE)

_FUNCTIONS = {"=": "equal", ">": "greater", ">=": "greater_equal", "<": "less", "<=": "less_equal"}
_NUMBERS = frozenset({ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.YEAR})


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """``column`` ``sign`` ``value``: a number, or a date or time, whose text ``is_quoted``."""

    column: str
    sign: str
    value: str
    is_quoted: bool


def parse_where(text: str) -> tuple[ColumnComparison, ...]:
    """Raises ``read.OPTION``."""
    found: list[ColumnComparison] = []
    at = 0
    while text.strip():
        match = _COMPARISON.match(text, at)
        if match is None:
            raise _refused(f"comparisons such as id >= 100 AND day < '2024-02-01' are possible, not {text[at:]!r}")
        is_quoted = match["text"] is not None
        value = match["text"] if is_quoted else match["number"]
        found.append(ColumnComparison(match["quoted"] or match["name"], match["sign"], value, is_quoted))
        at = match.end()
        if at == len(text):
            break
        joined = _AND.match(text, at)
        if joined is None:
            raise _refused(f"AND can join comparisons, not {text[at:]!r}")
        at = joined.end()
    return tuple(found)


def condition_of(where: Sequence[ColumnComparison], columns: Sequence[ColumnPlan]) -> bytes:
    """The SQL of the comparisons for one shard table, b"" for none. ``columns``: those of the DataFrame. Raises
    ``read.OPTION`` for columns and values that cannot be compared alike on both sides."""
    by_name = {column.target_name.lower(): column for column in columns}
    parts: list[str] = []
    for each in where:
        column = by_name.get(each.column.lower())
        if column is None:
            raise _refused(f"{each.column} is no column of the DataFrame")
        if column.mapping is not None:
            raise _refused(f"{each.column} is made by a rule: the servers do not have it")
        parts.append(f"{quote_name(column.column.name)} {each.sign} {_sql(_scalar(each, column))}")
    return " AND ".join(parts).encode()


def is_met(each: ColumnComparison, column: ColumnPlan, values: Any) -> Any:
    """Which of the ``values`` (an Arrow array of the column) meet a comparison; null where a value is NULL."""
    wanted: Any = pa.scalar(_scalar(each, column))
    if pa.types.is_timestamp(values.type):
        wanted = wanted.cast(values.type)
    return getattr(pc, _FUNCTIONS[each.sign])(values, wanted)


def _sql(value: Decimal | datetime.date) -> str:
    if isinstance(value, datetime.datetime):
        return f"'{value.replace(tzinfo=None).isoformat(' ')}'"
    return f"'{value.isoformat()}'" if isinstance(value, datetime.date) else format(value, "f")


def _scalar(each: ColumnComparison, column: ColumnPlan) -> Decimal | datetime.date:
    kind = column.column.kind
    try:
        if not each.is_quoted and kind in _NUMBERS:
            return Decimal(each.value)
        if each.is_quoted and kind is ValueKind.DATE:
            return datetime.date.fromisoformat(each.value)
        if each.is_quoted and kind in (ValueKind.DATETIME, ValueKind.TIMESTAMP):
            made = datetime.datetime.fromisoformat(each.value)
            return made.replace(tzinfo=datetime.UTC) if kind is ValueKind.TIMESTAMP else made
    except ValueError as error:
        raise _refused(f"{each.value!r}: {error}") from None
    if kind in _NUMBERS or kind in (ValueKind.DATE, ValueKind.DATETIME, ValueKind.TIMESTAMP):
        raise _refused(f"{each.value} is no value of {each.column}, {column.column.type_text}")
    raise _refused(f"{each.column} is {column.column.type_text}: only numbers, dates and times can be compared")


def _refused(reason: str) -> ShardmergeError:
    return errors.read.OPTION(option="where", reason=reason)
