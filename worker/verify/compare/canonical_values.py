"""Builds SQL expressions that give the same text for the same value at the source and at the target.

The form is injective: different values give different texts. So a checksum over it may report a difference where there
is none (two servers print a DOUBLE differently; the rows are then read and compared by :func:`same_value`), but never
hides one. The source's value is brought to the target's form if a wider column holds it (decimals and fractions of
a second get zeros, label numbers are translated); text is converted to utf8mb4 if the character sets differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import cast

from shardmerge.worker.binlog.rows.charsets import affix_bytes
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.mysql.information_schema import select_expression
from shardmerge.worker.core.table import Column, ValueKind, type_scale, type_size
from shardmerge.worker.core.table_plan import AddPrefix, ColumnPlan, ComputedValue, Constant, PartitionId

_TEMPORAL = (ValueKind.TIME, ValueKind.DATETIME, ValueKind.TIMESTAMP)
_REALS = (ValueKind.FLOAT, ValueKind.DOUBLE)
_LABELS = (ValueKind.ENUM, ValueKind.SET)
_HEXED = (ValueKind.GEOMETRY, ValueKind.VECTOR)
_LONG = re.compile(r"(medium|long)?(text|blob)\b|json|geom|point|line|polygon|multi|vector")
_SHOWN_BYTES = 200


class NotComparable(Exception):
    """A column cannot be compared; the text is the reason."""


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """How one column is compared.

    ``source``, ``target``: expressions that give the same text for the same value, NULL for NULL. ``is_long``: values
    may be too long to be sent, so their hash is compared. ``is_binary``: shown in hexadecimal. ``nullable``: at one
    side at least. ``by_meaning``: the target orders the keys of JSON in its own way (TiDB).
    """

    name: str
    kind: ValueKind
    source: str
    target: str
    is_long: bool
    is_binary: bool
    nullable: bool = True
    by_meaning: bool = False

    @property
    def is_hashed(self) -> bool:
        """Whether the hash of a value is read instead of the value."""
        return self.is_long and not (self.by_meaning and self.kind is ValueKind.JSON)

    def hashed(self, expression: str) -> str:
        """The value's part of a row's checksum: of bounded length, without NULL, which is marked separately."""
        if self.is_long:
            return f"SHA2({expression},256)"
        if self.kind in _REALS:
            # As the argument of a text function, MySQL 9 cuts a computed real to 22 characters: -1.3310000000000005e-17
            # loses its last digits. As JSON all servers print it whole and alike, except that MySQL appends ".0" to
            # whole numbers.
            return f"REPLACE(JSON_ARRAY({expression}),'.0]',']')"
        if self.kind in (ValueKind.STRING, ValueKind.BINARY, ValueKind.JSON, *_LABELS):
            return f"LENGTH({expression}),{expression}"
        return expression

    def shown(self, expression: str) -> str:
        """The expression for the shown beginning of a value."""
        if self.is_binary:
            return f"HEX(LEFT({expression},{_SHOWN_BYTES // 2}))"
        return f"LEFT({expression},{_SHOWN_BYTES})" if self.is_long else expression


def compared_column(
    item: ColumnPlan, target: Column, *, as_utf8: bool = False, signed_zero: bool = True
) -> ComparedColumn:
    """How ``item`` is compared with the target's column, which can hold its values (see
    worker/target/tables/column_fit.py). ``as_utf8``: see TablePlan.text_as_utf8. ``signed_zero``: whether -0.0 is
    another value than 0.0 at the target.

    Raises NotComparable.
    """
    column = item.column
    source_sql, target_sql = _expressions(item, target, as_utf8=as_utf8, signed_zero=signed_zero)
    return ComparedColumn(
        name=item.target_name,
        kind=column.kind,
        source=source_sql,
        target=target_sql,
        is_long=_LONG.match(column.type_text) is not None or _LONG.match(target.type_text) is not None,
        is_binary=column.kind is ValueKind.BINARY,
        nullable=column.nullable or target.nullable,
        by_meaning=as_utf8,
    )


def _expressions(item: ColumnPlan, target: Column, *, as_utf8: bool, signed_zero: bool) -> tuple[str, str]:
    column = item.column
    ours, theirs = select_expression(column), select_expression(target)
    match (column.kind, target.kind):
        case (ValueKind.INTEGER, ValueKind.INTEGER):
            if isinstance(item.mapping, PartitionId):
                ours = f"({quote_name(column.name)} | {item.mapping.prefix})"
            return ours, theirs
        case (ValueKind.DECIMAL, ValueKind.DECIMAL):
            return _padded(ours, type_scale(column.type_text), type_scale(target.type_text)), theirs
        case (ValueKind.DATE, ValueKind.DATE) | (ValueKind.YEAR, ValueKind.YEAR) | (ValueKind.BIT, ValueKind.BIT):
            return ours, theirs
        case (ValueKind.FLOAT | ValueKind.DOUBLE, ValueKind.FLOAT | ValueKind.DOUBLE):
            return ours if signed_zero else f"({ours}+0e0)", theirs
        case _ if column.kind in _TEMPORAL and column.kind is target.kind:
            return _padded(ours, type_size(column.type_text), type_size(target.type_text)), theirs
        case (ValueKind.STRING, ValueKind.STRING):
            return _texts(item, target, as_utf8=as_utf8)
        case (ValueKind.BINARY, ValueKind.BINARY):
            return ours, theirs
        case (ValueKind.ENUM, ValueKind.ENUM) | (ValueKind.SET, ValueKind.SET):
            return (ours if column.labels == target.labels else _target_number(column, target)), theirs
        case _ if column.kind in _LABELS and target.kind is ValueKind.STRING:
            return _utf8(quote_name(column.name)), _utf8(quote_name(target.name))
        case (ValueKind.JSON, ValueKind.JSON | ValueKind.STRING):
            return _json(column), _json(target) if target.kind is ValueKind.JSON else _utf8(quote_name(target.name))
        case (ValueKind.VECTOR, ValueKind.BINARY):
            return f"HEX({ours})", f"HEX({theirs})"
        case _ if column.kind in _HEXED and column.kind is target.kind:
            return f"HEX({ours})", f"HEX({theirs})"
        case _:
            raise NotComparable(
                f"column {item.target_name}: {column.type_text} at the source, {target.type_text} at the target"
            )


def _padded(expression: str, digits: int, wanted: int) -> str:
    """Pad a number's or time's text from ``digits`` to ``wanted`` digits after the point with zeros."""
    if digits == wanted:
        return expression
    return f"CONCAT({expression},'{'' if digits else '.'}{'0' * (wanted - digits)}')"


def same_charset(one: str, other: str) -> bool:
    """Whether bytes of one character set mean the same in the other: utf8 is utf8mb3's old name."""
    return one.replace("utf8mb3", "utf8") == other.replace("utf8mb3", "utf8")


def _bytes(expression: str) -> str:
    return f"CONVERT({expression} USING binary)"


def _utf8(expression: str) -> str:
    return _bytes(f"CONVERT({expression} USING utf8mb4)")


def _json(column: Column) -> str:
    return _bytes(f"CAST({quote_name(column.name)} AS CHAR CHARACTER SET utf8mb4)")


def _texts(item: ColumnPlan, target: Column, *, as_utf8: bool) -> tuple[str, str]:
    ours, theirs = quote_name(item.column.name), quote_name(target.name)
    same = same_charset(item.column.charset, target.charset) and not as_utf8
    ours, theirs = (_bytes(ours), _bytes(theirs)) if same else (_utf8(ours), _utf8(theirs))
    if item.mapping is None:
        return ours, theirs
    if isinstance(item.mapping, Constant):
        return f"X'{item.mapping.text.encode().hex()}'", _utf8(quote_name(target.name))
    if isinstance(item.mapping, PartitionId):
        raise NotComparable(f"column {item.target_name}: `partition id` of a text")
    if isinstance(item.mapping, ComputedValue):
        raise NotComparable(f"column {item.target_name} is computed")
    affix = affix_bytes(item.mapping.text, item.column.charset if same else "utf8mb4")
    if affix is None:
        raise NotComparable(f"column {item.target_name}: {item.mapping.text!r} in {item.column.charset}")
    literal = f"X'{affix.hex()}'"
    return (f"CONCAT({literal},{ours})" if isinstance(item.mapping, AddPrefix) else f"CONCAT({ours},{literal})"), theirs


def _target_number(column: Column, target: Column) -> str:
    """The number of the value's label in the target's column. Raises NotComparable."""
    places = {label: at for at, label in enumerate(target.labels)}
    missing = [label for label in column.labels if label not in places]
    if missing:
        raise NotComparable(f"column {column.name}: the target lacks label {missing[0]!r}")
    number = select_expression(column)
    if column.kind is ValueKind.ENUM:
        numbers = ",".join(str(places[label] + 1) for label in column.labels)
        return f"IF({number}=0,0,ELT({number},{numbers}))"
    bits = "|".join(f"((({number})>>{at})&1)<<{places[label]}" for at, label in enumerate(column.labels))
    return f"({bits})"


def row_hash(columns: Sequence[ComparedColumn], *, at_source: bool) -> str:
    """A row's checksum, 64 hexadecimal digits; NULL for a row that is longer than the server can concatenate.

    Values are separated by commas. Every text follows its length, numbers and times contain no comma, and flags for
    NULLs come last: no two rows give the same text.
    """
    expressions = [(column, column.source if at_source else column.target) for column in columns]
    parts = [column.hashed(expression) for column, expression in expressions]
    nulls = [f"ISNULL({expression})" for column, expression in expressions if column.nullable]
    if nulls:
        parts.append(f"CONCAT({','.join(nulls)})")
    return f"SHA2(CONCAT_WS(',',{','.join(parts)}),256)"


def hash_sum(columns: Sequence[ComparedColumn], *, at_source: bool) -> str:
    """COUNT(*) and the sum of 64 bits of every row's checksum: the same for the same rows in any order.

    It is a sum because an exclusive or would lose pairs of equal rows. A row without a checksum makes the sum random,
    so that its chunk is read.
    """
    digits = f"CONV(LEFT({row_hash(columns, at_source=at_source)},16),16,10)"
    return f"COUNT(*),COALESCE(SUM(CAST(COALESCE({digits},FLOOR(1+RAND()*1e15)) AS UNSIGNED)),0)"


def multiset_sums(columns: Sequence[ComparedColumn], *, at_source: bool) -> str:
    """COUNT(*), the number of rows with a checksum, and the sums of the first and second 64 bits of their checksums:
    the same for the same rows, each as often, in any order."""
    checksum = row_hash(columns, at_source=at_source)
    sums = [f"COALESCE(SUM(CAST(CONV(SUBSTR({checksum},{start},16),16,10) AS UNSIGNED)),0)" for start in (1, 17)]
    return f"COUNT(*),COUNT({checksum}),{','.join(sums)}"


def same_value(column: ComparedColumn, one: bytes | None, other: bytes | None) -> bool:
    """Whether two texts of this form are the same value."""
    if one == other:
        return True
    if one is None or other is None:
        return False
    if column.kind in _REALS:
        ours, theirs = float(one), float(other)
        return ours == theirs and one.startswith(b"-") == other.startswith(b"-")
    if column.kind is ValueKind.JSON and column.by_meaning and not column.is_hashed:
        return _same_json(one, other)
    return False


def _same_json(one: bytes, other: bytes) -> bool:
    """Whether two JSON texts have one value: members of objects in any order, numbers exactly, 1 equal to 1.0."""
    try:
        return _ordered(json.loads(one, parse_float=Decimal)) == _ordered(json.loads(other, parse_float=Decimal))
    except ValueError:
        return False


def _ordered(value: object) -> object:
    """A JSON value in which True is not equal to 1."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: _ordered(member) for name, member in members.items()}
    if isinstance(value, list):
        return [_ordered(element) for element in cast("list[object]", value)]
    return (value,) if isinstance(value, bool) else value
