"""A table as a CREATE TABLE describes it, in values: columns, indexes, primary key, the rest. Pure.

The text is that of SHOW CREATE TABLE of the target's server, so equal things are printed alike (MySQL Reference Manual,
"SHOW CREATE TABLE Statement"; MariaDB, "SHOW CREATE TABLE").
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.ddl.creation import Creation
from worker.ddl.definition import Definition


@dataclass(frozen=True, slots=True)
class Index:
    """One index that is not the primary key. ``text``: the item of the CREATE TABLE, whole; ``columns``: their names in
    lower case, in order; ``unique``: whether it refuses rows."""

    name: str
    text: str
    columns: tuple[str, ...]
    unique: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """A table's structure. ``primary_key``: its item, "" without one; ``checks``: the items that are neither columns
    nor indexes nor foreign keys, without their names; ``options``: what stands behind the list of columns, without the
    next AUTO_INCREMENT value; ``collation``: the table's default."""

    columns: tuple[Definition, ...]
    indexes: tuple[Index, ...]
    primary_key: str
    checks: tuple[str, ...]
    options: str
    collation: str


def described(creation: Creation) -> Shape:
    """Raises :class:`worker.create_table.UnreadableCreateTable`."""
    raise NotImplementedError
