"""The least type that holds the values of several, each unchanged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnType:
    """``base``: the type's word in lower case; ``arguments``: as printed, without display widths of integers unless
    ``zerofill``. ``charset`` and ``collation``: "" for what is no text."""

    base: str
    arguments: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: str = ""
    collation: str = ""


@dataclass(frozen=True, slots=True)
class Apart:
    """No type holds the values unchanged. ``why``: a clause for people."""

    why: str


def widest(types: Sequence[ColumnType]) -> ColumnType | Apart:
    """The least type that holds every value of each; the order does not count. At least one is given."""
    raise NotImplementedError
