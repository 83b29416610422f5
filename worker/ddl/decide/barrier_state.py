"""A stream's tables at a barrier, and the changes that one statement makes to the subtask's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.given_names import NO_NAMES, GivenNames
from shardmerge.worker.ddl.decide.track import (
    Dropped,
    Elsewhere,
    Entering,
    LaterStructure,
    Leaving,
    Own,
    PartialCopy,
    Track,
    name_at,
    name_of,
    recorded,
    violations,
)
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.rules.table_window import TableWindow
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.dropped_columns import Member
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import AwayName, Partitioning, merge_partitionings
from shardmerge.worker.target.records.shadow_tables import ShadowRecord
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION


@dataclass(frozen=True)
class StreamTables:
    """A subtask's tables at a position of a stream. ``tables``: by number, including former ones, as recorded; those
    with a later structure have that one. ``tracks``: of the stream's shard tables, by number. ``partitioning``: of
    their rows. ``scope``: the names whose rows the stream applies."""

    tables: tuple[Table, ...]
    tracks: Mapping[int, Track]
    partitioning: Partitioning
    scope: TableScope

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
        """See :func:`shardmerge.worker.ddl.decide.track.violations`."""
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
        changed = {number: after for number, at in self.tracks.items() if (after := at.at(offset)) is not at}
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
        joined: dict[int, Own] = {}
        for number, track in other.tracks.items():
            if isinstance(track, Own):
                joined[number] = track
            elif isinstance(track, Entering):
                joined[number] = track.entered()
        tables = list(self.tables)
        for number, track in sorted(joined.items()):
            _put(tables, number, track.plan.table)
        # At this place, all its names belong to ``other`` here too, also those of tables that it has dropped.
        names = frozenset(name_of(track.plan) for track in joined.values()) | (other.scope.only or frozenset())
        stay = {
            number: track
            for number, track in self.tracks.items()
            if not (isinstance(track, Elsewhere) and track.name in names)
        }
        tracks = {**stay, **joined}
        partitioning = merge_partitionings(self.partitioning, other.partitioning)
        scope = replace(self.scope, others=self.scope.others - names)
        return StreamTables(tuple(tables), tracks, recorded(partitioning, tracks), scope)


def own_tracks(
    plans: Iterable[TablePlan],
    later: Mapping[int, LaterStructure] = MappingProxyType({}),
    copies: Mapping[int, PartialCopy] = MappingProxyType({}),
) -> dict[int, Track]:
    """The tracks of a stream's own tables. ``later``, ``copies``: by number."""
    return {plan.shard: Own(plan, later.get(plan.shard), copies.get(plan.shard)) for plan in plans}


@dataclass(slots=True)
class BarrierChanges:
    """The changes that the actions of one statement make; recorded in one transaction.

    ``before``: the tables before the statement. ``numbers``: for new tables; ``taken``: those that this statement has
    taken. ``leaving``: of the parked tables, those that are parked at a later statement. ``later``: structures that
    tables get at a later statement. ``subjects``: lock names under which statements were begun at the target.
    ``rename_marks``: those of them that left a marker table there.
    ``dropped``: see worker/target/records/dropped_columns.py. ``shadow_records``: see
    worker/target/records/shadow_tables.py, None for records to delete. ``joined``: targets that have become the schema
    join of their shard tables. ``names``: how the statement changes the names of the tables that other streams have, or
    of those that this stream has if it is not the main one. ``created_elsewhere``: the new table that another stream
    creates. ``dropped_elsewhere``: the names of tables of other streams that the statement drops.
    """

    before: StreamTables
    numbers: TableNumbers
    taken: list[int] = field(default_factory=list[int])
    tables: dict[int, Table] = field(default_factory=dict[int, Table])
    creations: dict[int, CreateStatement] = field(default_factory=dict[int, CreateStatement])
    plans: dict[int, TablePlan] = field(default_factory=dict[int, TablePlan])
    removed: set[int] = field(default_factory=set[int])
    one_lane: dict[TargetTable, bool] = field(default_factory=dict[TargetTable, bool])
    subjects: set[str] = field(default_factory=set[str])
    parked: dict[int, Parked] = field(default_factory=dict[int, Parked])
    leaving: dict[int, Leaving] = field(default_factory=dict[int, Leaving])
    later: dict[int, LaterStructure] = field(default_factory=dict[int, LaterStructure])
    joined: set[TargetTable] = field(default_factory=set[TargetTable])
    rename_marks: set[str] = field(default_factory=set[str])
    dropped: dict[Member, frozenset[str]] = field(default_factory=dict[Member, frozenset[str]])
    shadow_records: dict[TableName, ShadowRecord | None] = field(default_factory=dict[TableName, ShadowRecord | None])
    names: GivenNames = NO_NAMES
    created_elsewhere: AwayName | None = None
    dropped_elsewhere: frozenset[TableName] = frozenset()

    def leave_table(self, name: TableName, place: StatementPlace, owner: int) -> None:
        """Leave the new table ``name``, which the statement at ``place`` creates, to the stream of table ``owner``. It
        gets its number here, and its structure when that stream creates it."""
        number = self.take_number()
        self.tables[number] = replace(self.before.tables[owner], schema=name[0], name=name[1])
        self.created_elsewhere = AwayName(number, *name, place, owner)

    def detach_renamed(self) -> None:
        """Remove the tables of this stream whose names belong to another stream after the statement. An operator or a
        filter has skipped their part of it. A name that no table of the main stream has taken stays another stream's:
        a table that joins may have begun after the statement."""
        gone = self.names.gained.keys() if self.before.scope.only is None else self.names.lost
        if self.before.scope.only is None and self.names.lost:
            moved = frozenset(self.names.gained.values())
            used = set(map(name_of, {**self.before.plans, **self.plans}.values()))
            self.names = replace(self.names, lost=frozenset(self.names.lost & (moved | used)))
        if gone:
            plans = {**self.before.plans, **self.plans}
            self.removed.update(number for number, plan in plans.items() if name_of(plan) in gone)

    def take_number(self) -> int:
        """A number for a new shard table."""
        self.taken.append(self.numbers.take())
        return self.taken[-1]

    def set_structure(self, plan: TablePlan, creation: CreateStatement) -> None:
        """Set the shard table's structure after the statement."""
        self.tables[plan.shard] = plan.table
        self.creations[plan.shard] = creation
        self.plans[plan.shard] = plan

    def set_later_structure(self, later: LaterStructure, creation: CreateStatement) -> None:
        """Set the shard table's structure after a later statement, which the lanes have not reached."""
        number = later.plan.shard
        self.tables[number] = later.plan.table
        self.creations[number] = creation
        self.later[number] = later

    def leave_to_copy(self, statement: Statement, resume_at: SourcePosition, now: float) -> None:
        """Let the tables leave the stream whose copy ``statement`` has interrupted, unless it parks or removes them.
        ``resume_at``: the end of its group; ``now``: Unix seconds."""
        for number, item in self.before.copies.items():
            if item.offset <= statement.group_start and number not in self.removed and number not in self.parked:
                self.parked[number] = Parked(
                    number,
                    "",
                    statement.schema,
                    statement.sql_mode or 0,
                    is_mariadb=False,
                    session=UNKNOWN_SESSION,
                    place=StatementPlace.of(statement),
                    resume_at=resume_at,
                    since=now,
                    released=True,
                    resumes_copy=item.number,
                )

    def apply(self) -> StreamTables:
        """The subtask's tables after the statement."""
        before, scope = self.before, self.before.scope
        tables = list(before.tables)
        for number, table in sorted(self.tables.items()):
            _put(tables, number, table)
        tracks = dict(before.tracks)
        for number, plan in self.plans.items():
            tracks[number] = replace(track, plan=plan) if isinstance(track := tracks.get(number), Own) else Own(plan)
        for number, later in self.later.items():
            tracks[number] = Own(before.plans[number], later, before.copies.get(number))
        parked = {number: name_of(self.plans.get(number) or before.plans[number]) for number in self.parked}
        for number in self.removed | parked.keys():
            tracks.pop(number, None)
        if scope.only is None:
            tracks.update({number: self.leaving.get(number, Elsewhere(name)) for number, name in parked.items()})
            self._follow_names(tracks)
            created = (
                ()
                if self.created_elsewhere is None
                else ((self.created_elsewhere.schema, self.created_elsewhere.table),)
            )
            scope = replace(scope, others=self.names.apply(scope.others).union(created, parked.values()))
        else:
            made = (name_of(plan) for number, plan in self.plans.items() if number not in before.plans)
            scope = replace(scope, only=self.names.apply(scope.only).union(made).difference(parked.values()))
            self._keep_dropped_names(tracks, scope.only or frozenset())
        lacking = before.partitioning.may_lack_rows
        for number in tracks if self.one_lane else self.plans:
            if isinstance(track := tracks.get(number), Own):
                plan = _with_facts(track.plan, self.one_lane, lacking)
                tracks[number] = track if plan is track.plan else replace(track, plan=plan)
        own = [track.plan for track in tracks.values() if isinstance(track, Own)]
        partitioning = replace(
            before.partitioning,
            one_lane=frozenset(plan.target_name for plan in own if plan.one_lane),
            may_lack_rows=lacking.union(plan.shard for plan in own if plan.may_lack_rows),
        )
        return StreamTables(tuple(tables), tracks, recorded(partitioning, tracks), scope)

    def _follow_names(self, tracks: dict[int, Track]) -> None:
        """Give the tables of other streams the names that the statement gives them."""
        if not self.names and self.created_elsewhere is None and not self.dropped_elsewhere:
            return
        before = self.before.names_elsewhere
        after = {name: number for name, number in before.items() if name not in self.names.lost}
        for name, origin in self.names.gained.items():
            number = before.get(origin, before.get(name))
            if number is not None:  # a shadow table has none, and takes the name of its table
                after[name] = number
        if (left := self.created_elsewhere) is not None:
            after[left.schema, left.table] = left.number
            tracks[left.number] = Elsewhere((left.schema, left.table), left)
        names = {number: name for name, number in after.items()}
        exist = {after.get(name) for name in self.names.gained}
        for number in before.values():
            track, name = tracks[number], names.get(number)
            if not isinstance(track, Elsewhere):
                continue
            record = track.record
            if name != track.name:
                schema, table = name or ("", "")
                record = replace(record or AwayName(number, "", ""), schema=schema, table=table, dropped=False)
            elif record is not None and number in exist:
                record = replace(record, dropped=False)
            if name in self.dropped_elsewhere:
                record = replace(record or AwayName(number, *name), dropped=True)
            if (name, record) != (track.name, track.record):
                tracks[number] = Elsewhere(name, record)

    def _keep_dropped_names(self, tracks: dict[int, Track], only: frozenset[TableName]) -> None:
        """Keep the names of the tables that were dropped in this stream until other tables have them."""
        before = self.before
        kept = {**before.dropped, **{name_of(before.plans[at]): at for at in self.removed if at in before.plans}}
        if not kept:
            return
        used = {name_of(track.plan) for track in tracks.values() if isinstance(track, Own)}
        for number in before.dropped.values():
            del tracks[number]
        tracks.update({number: Dropped(name) for name, number in kept.items() if name in only and name not in used})


def _put(tables: list[Table], number: int, table: Table) -> None:
    """Numbers in between are those of tables that another stream has created: nothing looks them up here."""
    tables.extend([table] * (number + 1 - len(tables)))
    tables[number] = table


def _with_facts(plan: TablePlan, one_lane: Mapping[TargetTable, bool], may_lack_rows: frozenset[int]) -> TablePlan:
    """The same object where nothing changes: thousands of plans stay as they are."""
    wanted = one_lane.get(plan.target, plan.one_lane) if one_lane else plan.one_lane
    lacks = plan.may_lack_rows or plan.shard in may_lack_rows
    if wanted == plan.one_lane and lacks == plan.may_lack_rows:
        return plan
    return replace(plan, one_lane=wanted, may_lack_rows=lacks)
