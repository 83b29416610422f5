"""Decides which indexes of a new target table are deferred until its load has ended, and when to add them. Pure.

Only plain secondary indexes are deferred. These exist from the start: unique keys (they detect collisions), FULLTEXT,
SPATIAL and VECTOR indexes (adding them rebuilds or locks the table), and indexes over expressions or generated columns
(not every server adds those while other sessions write).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.mysql.create_table import index_parts, numbered_column

DEFER_FROM_ROWS = 20_000
"""Smaller tables keep their indexes: an ALTER costs about as much as it saves for this many rows."""

_PLAIN = re.compile(r"KEY\s+`", re.IGNORECASE)


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

    An index that begins with the column with AUTO_INCREMENT stays: a server requires one.
    Raises :class:`shardmerge.worker.core.mysql.create_table.UnreadableCreateTable`.
    """
    found: list[DeferredIndex] = []
    numbered = numbered_column(creation)
    for item in index_parts(creation):
        plain = _PLAIN.match(item.text) is not None
        if numbered and item.columns[:1] == (numbered,):
            continue
        if plain and not item.has_expressions and not generated & {name.lower() for name in item.columns}:
            found.append(DeferredIndex(item.name, item.text))
    return tuple(found)


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
