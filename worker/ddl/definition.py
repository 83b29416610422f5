"""One column of a CREATE TABLE, cut into what a join looks at. Pure.

MySQL Reference Manual, "CREATE TABLE Statement", "Data Type Default Values"; MariaDB, "CREATE TABLE".
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.ddl.widening import ColumnType


@dataclass(frozen=True, slots=True)
class Definition:
    """``text``: as printed behind the name. ``default``: as printed, "NULL" for one that is implied, "" for none.
    ``rest``: the attributes that are none of the other fields, as printed. ``comment``: a literal or ""."""

    name: str
    text: str
    type: ColumnType
    nullable: bool
    default: str
    comment: str
    rest: tuple[str, ...]
