"""The tables of a stream at a place. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from shardmerge.proto import errors
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.recorded_tracks import recorded, violations
from shardmerge.worker.ddl.decide.track import (
    Dropped,
    Elsewhere,
    Entering,
    Event,
    LanesAt,
    LaterStructure,
    Leaving,
    Own,
    PartialCopy,
    TakenOver,
    Track,
    name_at,
    name_of,
    step,
)
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.rules.table_window import TableWindow
from shardmerge.worker.target.records.partitioning import Partitioning, merge_partitionings


@dataclass(frozen=True)
class StreamTables:
    """A subtask's tables at a position of a stream. ``tables``: by number, including former ones, as recorded; those
    with a later structure have that one. ``tracks``: of the stream's shard tables, by number. ``partitioning``: of
    their rows. ``scope``: the names whose rows the stream applies."""

    tables: tuple[Table, ...]
    tracks: Mapping[int, Track]
    partitioning: Partitioning
    scope: TableScope

    @property
    def is_main(self) -> bool:
        """Whether it is the main stream; otherwise that of joining tables."""
        return self.scope.only is None

    @cached_property
    def plans(self) -> Mapping[int, TablePlan]:
        """The plans of the tables whose rows the stream applies at this place, by number."""
        return {number: track.plan for number, track in self.tracks.items() if isinstance(track, Own)}

    @cached_property
    def entering(self) -> Mapping[int, Entering]:
        return {number: track for number, track in self.tracks.items() if isinstance(track, Entering)}

    @cached_property
    def leaving(self) -> Mapping[int, Leaving]:
        return {number: track for number, track in self.tracks.items() if isinstance(track, Leaving)}

    @cached_property
    def later(self) -> Mapping[int, LaterStructure]:
        """The structures that tables get at later places."""
        return {
            number: track.later
            for number, track in self.tracks.items()
            if isinstance(track, Own) and track.later is not None
        }

    @cached_property
    def copies(self) -> Mapping[int, PartialCopy]:
        """The tables whose history is copied in part."""
        return {
            number: track.copy
            for number, track in self.tracks.items()
            if isinstance(track, Own) and track.copy is not None
        }

    @cached_property
    def names_elsewhere(self) -> Mapping[TableName, int]:
        """Of the main stream: the names of the tables that are parked or that other streams have, with their numbers;
        also names of tables that those have dropped."""
        found = {
            name_at(track): number for number, track in self.tracks.items() if isinstance(track, Leaving | Elsewhere)
        }
        return {name: number for name, number in found.items() if name is not None}

    @cached_property
    def dropped(self) -> Mapping[TableName, int]:
        """Of a stream of joining tables: the names of tables that were dropped in it, with their numbers."""
        return {track.name: number for number, track in self.tracks.items() if isinstance(track, Dropped)}

    def violations(self, before: Mapping[int, Track] | None = None) -> tuple[str, ...]:
        """See :func:`shardmerge.worker.ddl.decide.recorded_tracks.violations`."""
        return tuple(violations(self.tables, self.tracks, self.partitioning, self.scope, before))

    def checked(self, before: StreamTables, where: str) -> StreamTables:
        """The same, to be recorded at ``where``. Raises INTERNAL for what must not be, which would lose rows or apply
        them twice; nothing is recorded then."""
        if found := self.violations(before.tracks):
            raise errors.worker.INTERNAL(kind="illegal state of tables", where=where, reason="; ".join(found))
        return self

    def at_barrier(self, offset: RelayOffset) -> StreamTables:
        """The tables at a barrier at ``offset``: every lane has reached it, and no lane is beyond it."""
        if not self.entering and not self.leaving and not self.later:
            return self
        reached = LanesAt(offset)
        changed = {
            number: after
            for number, track in self.tracks.items()
            if (after := step(track, reached, is_main=self.is_main)) is not track and after is not None
        }
        if not changed:
            return self
        tracks = {**self.tracks, **changed}
        scope = self.scope
        if scope.only is not None:
            scope = replace(
                scope, only=scope.only.union(name_of(one.plan) for at in changed if (one := self.entering.get(at)))
            )
        return replace(self, tracks=tracks, scope=scope, partitioning=recorded(self.partitioning, tracks))

    def is_whole_at(self, offset: RelayOffset) -> bool:
        """Whether all tables that enter the stream have entered it at ``offset``."""
        return all(track.offset <= offset for track in self.entering.values())

    @property
    def statements(self) -> TableScope:
        """The tables whose statements concern the stream, at this place or at a later one."""
        scope = self.scope
        if scope.only is None or not self.entering:
            return scope
        return replace(scope, only=scope.only.union(name_of(track.plan) for track in self.entering.values()))

    @property
    def plans_in_order(self) -> tuple[TablePlan, ...]:
        """The plans by number."""
        return tuple(plan for _, plan in sorted(self.plans.items()))

    @property
    def recorded_plans(self) -> tuple[TablePlan, ...]:
        """The plans for the structures that are recorded, by number."""
        later = {number: item.plan for number, item in self.later.items()}
        return tuple(plan for _, plan in sorted({**self.plans, **later}.items()))

    @property
    def timed_plans(self) -> tuple[TablePlan, ...]:
        """The plans of the tables that enter or leave the stream without a barrier."""
        return tuple(track.plan for found in (self._next_entering, self.leaving) for _, track in sorted(found.items()))

    @property
    def windows(self) -> tuple[TableWindow, ...]:
        """Where the lanes apply the rows of :attr:`timed_plans`."""
        return (
            *(TableWindow(name_of(one.plan), begin=one.offset) for _, one in sorted(self._next_entering.items())),
            *(TableWindow(name_of(one.plan), end=one.offset) for _, one in sorted(self.leaving.items())),
        )

    @cached_property
    def _next_entering(self) -> Mapping[int, Entering]:
        """The tables that can enter the stream before its next barrier: not those with a name that another table of the
        stream has until a statement takes it away, at a barrier."""
        if not self.entering:
            return self.entering
        used = set(map(name_of, self.plans.values()))
        found: dict[int, Entering] = {}
        for number, track in sorted(self.entering.items(), key=lambda pair: pair[1].offset):
            if name_of(track.plan) not in used:
                used.add(name_of(track.plan))
                found[number] = track
        return found

    def with_joined(self, other: StreamTables) -> StreamTables:
        """The tables of this stream and ``other`` after both were merged, at a place where ``other`` is whole."""
        taken = {
            number: TakenOver(track) for number, track in other.tracks.items() if isinstance(track, Own | Entering)
        }
        plans = {number: event.track.plan for number, event in taken.items() if event.track is not None}
        # At this place, all its names belong to ``other`` here too, also those of tables that it has dropped.
        names = frozenset(map(name_of, plans.values())) | (other.scope.only or frozenset())
        dropped = {
            number: TakenOver(None)
            for number, track in self.tracks.items()
            if isinstance(track, Elsewhere) and track.name in names
        }
        tables = with_tables(self.tables, {number: plan.table for number, plan in plans.items()})
        tracks = after_events(self.tracks, {**dropped, **taken}, is_main=self.is_main)
        partitioning = merge_partitionings(self.partitioning, other.partitioning)
        scope = replace(self.scope, others=self.scope.others - names)
        return StreamTables(tables, tracks, recorded(partitioning, tracks), scope)


def after_events(tracks: Mapping[int, Track], events: Mapping[int, Event], *, is_main: bool) -> dict[int, Track]:
    """The tracks after ``events``, one for each table that has any."""
    found = dict(tracks)
    for number, event in events.items():
        after = step(found.pop(number, None), event, is_main=is_main)
        if after is not None:
            found[number] = after
    return found


def with_tables(tables: tuple[Table, ...], changed: Mapping[int, Table]) -> tuple[Table, ...]:
    """``tables``, by number, with those that are ``changed``. Numbers in between are those of tables that another
    stream has created: nothing looks them up here."""
    found = list(tables)
    for number, table in sorted(changed.items()):
        found.extend([table] * (number + 1 - len(found)))
        found[number] = table
    return tuple(found)
