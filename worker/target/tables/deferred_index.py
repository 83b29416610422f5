"""Decides which indexes of a target table are deferred until its load has ended, and when to add them. Pure.

Only plain secondary indexes are deferred. These exist from the start: unique keys (they detect collisions), FULLTEXT,
SPATIAL and VECTOR indexes (adding them rebuilds or locks the table), and indexes over expressions or generated columns
(not every server adds those while other sessions write). Those that begin with the columns of a foreign key stay too:
the server requires one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardmerge.proto import config_pb2
from shardmerge.worker.core.sql.foreign_keys import foreign_keys
from shardmerge.worker.core.sql.table_text import read_create_table

DEFER_FROM_ROWS = 20_000
"""Smaller tables keep their indexes: an ALTER costs about as much as it saves for this many rows."""


class Defer(enum.Enum):
    """Of which target tables the task defers indexes: the setting ``load.defer-indexes``."""

    NEVER = "never"
    CREATED = "created"
    """Tables that it creates."""
    EMPTY = "empty"
    """Also tables that exist and are empty when their load begins."""

    @staticmethod
    def of(load: config_pb2.LoadConfig) -> Defer:
        if not load.defer_indexes:
            return Defer.NEVER
        return Defer.EMPTY if load.defer_existing else Defer.CREATED


@dataclass(frozen=True, slots=True)
class DeferredIndex:
    """``definition``: as in CREATE TABLE.

    ``name`` "" is no index: the column ``definition`` lacks its AUTO_INCREMENT, which is added at the same time.
    """

    name: str
    definition: str

    @property
    def is_auto_increment(self) -> bool:
        return not self.name

    @property
    def shown(self) -> str:
        """For people."""
        return f"AUTO_INCREMENT of {self.definition}" if self.is_auto_increment else self.name


@dataclass(frozen=True, slots=True)
class Load:
    """Whether one source that has begun its snapshot of a target table has loaded it."""

    source: str
    loaded: bool


@dataclass(frozen=True, slots=True)
class Complete:
    """No deferred index is missing: the record can be deleted."""


@dataclass(frozen=True, slots=True)
class WaitForLoads:
    """Some sources are still loading the table."""

    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddIndexes:
    indexes: tuple[DeferredIndex, ...]


Step = Complete | WaitForLoads | AddIndexes


def deferrable(creation: str, generated: frozenset[str]) -> tuple[DeferredIndex, ...]:
    """The deferrable indexes of a CREATE TABLE. ``generated``: names of generated columns, in lower case.

    An index that begins with the column with AUTO_INCREMENT stays: a server requires one. So does one that begins with
    the columns of a foreign key; a created table has none.
    Raises :class:`shardmerge.worker.core.sql.table_text.UnreadableCreateTable`.
    """
    table = read_create_table(creation)
    referring = [frozenset(name.lower() for name in key.columns) for key in foreign_keys(creation)]
    return tuple(
        DeferredIndex(index.name, index.text)
        for index in table.indexes
        if index.word == "KEY"
        and not index.has_expressions
        and not generated.intersection(index.keys)
        and index.names[:1] != (table.numbered,)
        and all(columns != frozenset(index.keys[: len(columns)]) for columns in referring)
    )


def owed_with(owed: Sequence[DeferredIndex], present: Sequence[DeferredIndex]) -> tuple[DeferredIndex, ...]:
    """The record of a table whose indexes ``present`` are to be dropped; ``owed``: its record so far. The table's own
    definition of an index wins over an earlier record of the same name."""
    names = {index.name.lower() for index in present}
    return (*(index for index in owed if index.name.lower() not in names), *present)


def adding_statement(target: str, indexes: Sequence[DeferredIndex]) -> str:
    """The ALTER TABLE that adds them to the table ``target`` (quoted); "" without an index."""
    additions = ", ".join(f"ADD {index.definition}" for index in indexes if not index.is_auto_increment)
    return f"ALTER TABLE {target} {additions}" if additions else ""


def worth_deferring(row_estimates: Iterable[int]) -> bool:
    """Whether the load is large enough, by the server's row estimates of the shard tables at one source."""
    return sum(row_estimates) >= DEFER_FROM_ROWS


def next_step(
    owed: Sequence[DeferredIndex], present: frozenset[str] | None, loads: Iterable[Load], *, patient: bool
) -> Step:
    """The next step for one target table.

    ``owed``: the recorded deferred indexes. ``present``: names of the indexes that the table has, in lower case, and ""
    if a column has AUTO_INCREMENT; None: the table does not exist. An existing index of that name counts as the
    deferred one, also when another session added it: nothing of the table is ever replaced. ``patient``: wait for the
    sources that have begun their snapshot; a source that begins later finds the indexes there.
    """
    missing = tuple(index for index in owed if present is not None and index.name.lower() not in present)
    if not missing:
        return Complete()
    loading = tuple(dict.fromkeys(load.source for load in loads if not load.loaded))
    if patient and loading:
        return WaitForLoads(loading)
    return AddIndexes(missing)
