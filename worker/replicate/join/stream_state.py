"""Computes the state of a subtask's streams from its records, and what is recorded of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Dropped, Entering, PartialCopy, own_tracks
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.joining_tables import Joining, KeptName
from shardmerge.worker.target.records.partitioning import AwayName, Partitioning


def known_away_names(
    recorded: Partitioning | None, joining: Joining | None, parked: Iterable[int]
) -> tuple[AwayName, ...]:
    """The recorded names of other streams' tables, without those of tables that left the subtask or joined."""
    if recorded is None or not recorded.away:
        return ()
    numbers = set(parked)
    if joining is not None:
        numbers.update(joining.numbers, (item.number for item in joining.kept))
    # A table that is created like another one may be the one that a third one is like.
    while coming := {item.number for item in recorded.away if item.owner in numbers} - numbers:
        numbers |= coming
    return tuple(item for item in recorded.away if item.number in numbers)


def excluded_tables(
    tables: tuple[Table, ...], joining: Joining | None, parked: Iterable[int], named: Iterable[AwayName] = ()
) -> dict[TableName, int]:
    """The tables that the subtask's own lanes do not apply, with their numbers, under their names at these lanes'
    place: those that are joining and those that are parked. ``named``: see :func:`known_away_names`."""
    names: dict[int, TableName | None] = {}
    if joining is not None:
        names.update((item.number, (item.schema, item.table)) for item in joining.kept)
        names.update((number, _name(tables[number])) for number in joining.numbers)
    names.update((number, _name(tables[number])) for number in parked)
    names.update((item.number, item.name) for item in named)
    return {name: number for number, name in names.items() if name is not None}


def own_shards(tables: tuple[Table, ...], partitioning: Partitioning, others: Collection[TableName]) -> frozenset[int]:
    """The numbers of the tables that the own lanes apply. A table that moves to another target joins under a new
    number; the old number is no longer used."""
    return frozenset(at for at in partitioning.shards if _name(tables[at]) not in others)


def stream_tables(
    joining: Joining,
    rules: Rules,
    tables: tuple[Table, ...],
    plans: Mapping[int, TablePlan],
    entries: Mapping[int, RelayOffset],
    copies: Mapping[int, PartialCopy] = MappingProxyType({}),
) -> StreamTables:
    """The joining tables' stream, as recorded. ``plans``: by number, at least those of the joining tables; ``entries``:
    the offsets of the joining tables' entries, by number; ``copies``: of those that are copied in part."""
    numbers = joining.partitioning.shards
    tracks = own_tracks((plan for number, plan in plans.items() if number in numbers), copies=copies)
    tracks |= {item.number: Dropped((item.schema, item.table)) for item in joining.kept}
    for entry in joining.entries:
        at = entry.number
        tracks[at] = Entering(plans[at], entries[at], entry.place, copies.get(at))
    names = (*(_name(tables[number]) for number in numbers), *((item.schema, item.table) for item in joining.kept))
    return StreamTables(tables, tracks, joining.partitioning, TableScope(rules, only=frozenset(names)))


def joining_after(joining: Joining, now: StreamTables) -> Joining:
    """The record of ``joining`` when its stream has the state ``now``."""
    entries = tuple(entry for entry in joining.entries if entry.number in now.entering)
    kept = tuple(KeptName(number, *name) for name, number in sorted(now.dropped.items()))
    return replace(joining, partitioning=now.partitioning, entries=entries, kept=kept)


def is_one_place(found: Iterable[Checkpoint]) -> bool:
    """Whether all these lanes are at one place: only then may the lanes of one stream take over another's tables."""
    return len({(item.relay_id, item.offset, item.skip_events) for item in found}) == 1


def is_after_statements(found: Iterable[Checkpoint], executed: Iterable[StatementPlace | None]) -> bool:
    """Whether the lanes are after every statement that their streams have executed.

    A checkpoint right before a statement does not show on which side of it its stream is, and two streams there may be
    on different sides. This happens when the relay log has lost its end since, or another one begins there.
    ``executed``: the last statement of each stream.
    """
    return all(place is None or place.is_before(item.position) for item in found for place in executed)


def _name(table: Table) -> TableName:
    return table.schema, table.name
