"""The layout of merged ids that the column mapping ``partition id`` makes, and its inverse. Pure.

From bit 62 down: 4 bits instance, 7 schema, 8 table, the rest for the original id; a part given as "" takes no bits
(TiDB DM docs, "Column Mapping", partition id). Bit 63 stays 0, so that ids remain positive in a signed BIGINT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

INSTANCE_BITS, SCHEMA_BITS, TABLE_BITS = 4, 7, 8
"""Widths of the parts."""

ID_BITS = 63


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of the parts in a merged id: (first bit, bits) of each, None for one that takes no bits; ``bits``: of
    the original id."""

    instance: tuple[int, int] | None
    schema: tuple[int, int] | None
    table: tuple[int, int] | None
    bits: int


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a merged id; None for a part that has no bits."""

    instance: int | None
    schema: int | None
    table: int | None
    original: int


def layout_of(arguments: Sequence[str]) -> Layout:
    """``arguments``: instance number, schema prefix, table prefix and optionally a separator."""
    left = ID_BITS
    found: list[tuple[int, int] | None] = []
    for argument, bits in zip((*arguments, "", "", "")[:3], (INSTANCE_BITS, SCHEMA_BITS, TABLE_BITS), strict=True):
        if argument:
            left -= bits
        found.append((left, bits) if argument else None)
    instance, schema, table = found
    return Layout(instance, schema, table, left)


def partition_of(merged: int, arguments: Sequence[str]) -> Parts:
    """The inverse of the mapping. Raises ValueError for a number that is no merged id."""
    if not 0 <= merged < 1 << ID_BITS:
        raise ValueError(f"{merged} is no merged id: those are between 0 and {(1 << ID_BITS) - 1}")
    layout = layout_of(arguments)
    instance, schema, table = (
        None if place is None else merged >> place[0] & (1 << place[1]) - 1
        for place in (layout.instance, layout.schema, layout.table)
    )
    return Parts(instance, schema, table, merged & (1 << layout.bits) - 1)


def parts_sql(column: str, arguments: Sequence[str]) -> tuple[str, str, str, str]:
    """Four expressions for a SELECT: instance, schema, table, original id; "NULL" for a part that takes no bits.

    ``column``: as SQL. For MySQL, MariaDB and TiDB; of a column BIGINT, signed or not.
    """
    layout = layout_of(arguments)
    instance, schema, table = (
        "NULL" if place is None else f"({column} >> {place[0]} & {(1 << place[1]) - 1})"
        for place in (layout.instance, layout.schema, layout.table)
    )
    return instance, schema, table, f"({column} & {(1 << layout.bits) - 1})"


def shard_sql(column: str, merged: int, arguments: Sequence[str]) -> str:
    """A condition for a WHERE: the ids of the shard table that ``merged`` comes from. It can use an index on
    ``column``."""
    mask = (1 << layout_of(arguments).bits) - 1
    first = merged & ~mask
    return f"{column} BETWEEN {first} AND {first | mask}"


def names_of(number: int | None, prefix: str, separator: str) -> tuple[str, ...]:
    """Names with this ``number``; leading zeros in a name have no meaning. () for a part that has no bits."""
    if number is None:
        return ()
    full = f"{prefix}{separator}{number}"
    return (prefix, full) if number == 0 else (full,)
