"""Compares keys in the source's order: by SQL conditions for the server, or as numbers where both orders agree.

Chunks follow the *source server's* order (collations included). SQL here is for the source's session
(empty sql_mode, utf8mb4 statements).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from shardmerge.worker.binlog.rows.literal_text import comparable_expression
from shardmerge.worker.binlog.rows.row_literals import literal
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.snapshot.chunks import Bound

_INTEGERS = frozenset({ValueKind.INTEGER, ValueKind.YEAR, ValueKind.BIT})
_MOST_LABELS = 500
_UNORDERED = frozenset({ValueKind.SET, ValueKind.JSON, ValueKind.GEOMETRY, ValueKind.VECTOR})


def bound_columns(table: Table) -> tuple[Column, ...]:
    """The leading key columns that chunks can be cut by; () when the table cannot be cut.

    A SET compares as text but is indexed as a number, so only the columns before it can be used. A key whose index is
    hidden cannot be used to read a range: servers refuse FORCE INDEX for it (errno 1176, ER_KEY_DOES_NOT_EXITS).
    """
    if table.key_hidden:
        return ()
    columns: list[Column] = []
    for column in table.key_columns:
        if column.kind in _UNORDERED:
            break
        columns.append(column)
    return tuple(columns)


def bound_literal(column: Column, text: bytes) -> bytes:
    """A key value that a raw session read, as a bound. ENUM stays a number: the order of its index."""
    return text if column.kind is ValueKind.ENUM else literal(column, text)


def key_bound(columns: Sequence[Column], key: Literals) -> Bound:
    """The place of a decoded row's key (unmapped literals of all key columns) among bounds."""
    return tuple(
        _enum_number(column, value) if column.kind is ValueKind.ENUM else value
        for column, value in zip(columns, key, strict=False)
    )


def _enum_number(column: Column, label: bytes) -> bytes:
    # Index 0 is the empty label, which marks an invalid value.
    for index in range(len(column.labels) + 1):
        number = b"%d" % index
        if literal(column, number) == label:
            return number
    raise ValueError(f"{label!r} is no label of {column.name}")


def is_numeric(columns: Sequence[Column]) -> bool:
    """Whether bounds of these columns compare as integers, without asking a server."""
    return all(column.kind in _INTEGERS for column in columns)


def numbers(bound: Bound) -> tuple[int, ...]:
    return tuple(int(value) for value in bound)


def numeric_places(bounds: Sequence[Bound], keys: Sequence[Bound]) -> list[int]:
    """For each key how many of the ascending ``bounds`` are not above it: the number of its chunk."""
    ascending = [numbers(bound) for bound in bounds]
    return [bisect_right(ascending, numbers(key)) for key in keys]


def column_names(columns: Sequence[Column]) -> list[bytes]:
    return [quote_name(column.name).encode() for column in columns]


def above(names: Sequence[bytes], bound: Bound, columns: Sequence[Column] = ()) -> bytes:
    """``names`` > ``bound`` by all columns, as ``a > 1 OR (a = 1 AND b > 2)``. ``columns``: those of a table that have
    the names; () for names that are expressions.

    The optimizer makes an exact index range of this form; a row constructor, ``(a, b) > (1, 2)``, scans the
    whole index, and ``a >= 1 AND (a > 1 OR b > 2)`` every row with a = 1.
    """
    return _beyond(names, bound, b">", b">", columns)


def at_or_above(names: Sequence[bytes], bound: Bound, columns: Sequence[Column] = ()) -> bytes:
    """``names`` >= ``bound``; ``columns`` as for :func:`above`."""
    return _beyond(names, bound, b">", b">=", columns)


def below(names: Sequence[bytes], bound: Bound, columns: Sequence[Column] = ()) -> bytes:
    """``names`` < ``bound``; ``columns`` as for :func:`above`."""
    return _beyond(names, bound, b"<", b"<", columns)


def _beyond(names: Sequence[bytes], bound: Bound, sign: bytes, last_sign: bytes, columns: Sequence[Column]) -> bytes:
    kinds = columns or (None,) * len(names)
    condition = _compared(names[-1], last_sign, bound[-1], kinds[len(names) - 1])
    for at in reversed(range(len(names) - 1)):
        beyond = _compared(names[at], sign, bound[at], kinds[at])
        condition = b"%s OR (%s=%s AND (%s))" % (beyond, names[at], bound[at], condition)
    return condition


def _compared(name: bytes, sign: bytes, value: bytes, column: Column | None) -> bytes:
    """The optimizer uses an index of an ENUM for equal values only: with ``e > 1`` each chunk reads the whole table.

    A list without values has a number that no value has: with FALSE, ORDER BY sorts what it could read in order.
    """
    if column is None or column.kind is not ValueKind.ENUM or len(column.labels) > _MOST_LABELS:
        return name + sign + value
    number, after = int(value), len(column.labels) + 1
    # Index 0 is the empty label, which marks an invalid value.
    listed = range(number) if sign == b"<" else range(number + (sign == b">"), after)
    return name + b" IN (" + b",".join(b"%d" % one for one in listed or (after,)) + b")"


def in_range(names: Sequence[bytes], lower: Bound, upper: Bound, columns: Sequence[Column] = ()) -> bytes:
    """WHERE clause (with a leading space) of the keys from ``lower`` up to ``upper``; b"" when both are open.
    ``columns`` as for :func:`above`."""
    parts: list[bytes] = []
    if lower:
        parts.append(b"(" + at_or_above(names, lower, columns) + b")")
    if upper:
        parts.append(b"(" + below(names, upper, columns) + b")")
    return b" WHERE " + b" AND ".join(parts) if parts else b""


def columns_in_range(columns: Sequence[Column], lower: Bound, upper: Bound) -> bytes:
    """:func:`in_range` of a table's columns."""
    return in_range(column_names(columns), lower, upper, columns)


def typed_at_or_above(columns: Sequence[Column], key: Bound, bound: Bound) -> bytes:
    """``key`` >= ``bound`` as an expression over literals."""
    return at_or_above(
        [comparable_expression(column, value) for column, value in zip(columns, key, strict=True)],
        tuple(comparable_expression(column, value) for column, value in zip(columns, bound, strict=True)),
    )
