"""Which indexes of a new target table may wait for the end of the load, and when their time has come. Pure.

Deferred are plain secondary indexes alone. From the start are there: unique keys (collisions are found by them),
FULLTEXT, SPATIAL and VECTOR indexes (their addition rebuilds the table or locks it), and indexes over expressions or
generated columns (not every server adds those while others write).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from worker.create_table import index_parts

DEFER_FROM_ROWS = 20_000
"""Smaller tables keep their indexes: an ALTER costs about as much as so many rows gain."""

_PLAIN = re.compile(r"KEY\s+`", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DeferredIndex:
    """``definition``: as it stands in CREATE TABLE."""

    name: str
    definition: str


@dataclass(frozen=True, slots=True)
class Load:
    """How far one source's snapshot of a target table has come; of a source that has begun it."""

    source: str
    loaded: bool


@dataclass(frozen=True, slots=True)
class Fulfilled:
    """Nothing is owed (any more): the record of it can go."""


@dataclass(frozen=True, slots=True)
class Await:
    """Some sources are still loading the table."""

    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Add:
    indexes: tuple[DeferredIndex, ...]


Step = Fulfilled | Await | Add


def deferrable(creation: str, generated: frozenset[str]) -> tuple[DeferredIndex, ...]:
    """Those of a CREATE TABLE's indexes that may wait; ``generated``: names of generated columns, in lower case.

    Raises :class:`worker.create_table.UnreadableCreateTable`.
    """
    found: list[DeferredIndex] = []
    for item in index_parts(creation):
        plain = _PLAIN.match(item.text) is not None
        if plain and not item.has_expressions and not generated & {name.lower() for name in item.columns}:
            found.append(DeferredIndex(item.name, item.text))
    return tuple(found)


def worth_deferring(row_estimates: Iterable[int]) -> bool:
    """By the server's estimates of the shard tables at one source."""
    return sum(row_estimates) >= DEFER_FROM_ROWS


def next_step(
    owed: Sequence[DeferredIndex], present: frozenset[str] | None, loads: Iterable[Load], *, patient: bool
) -> Step:
    """What is to be done for one target table.

    ``owed``: as recorded. ``present``: names of the indexes that it has, in lower case; None: there is no such table.
    An index that is there counts as the one that is owed, whoever added it: nothing of the table is ever replaced.
    ``patient``: wait for the sources that have begun; one that begins later finds the indexes there.
    """
    missing = tuple(index for index in owed if present is not None and index.name.lower() not in present)
    if not missing:
        return Fulfilled()
    loading = tuple(dict.fromkeys(load.source for load in loads if not load.loaded))
    if patient and loading:
        return Await(loading)
    return Add(missing)
