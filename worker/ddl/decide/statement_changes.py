"""The changes that one statement makes to a stream's tables and to the subtask's records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.given_names import NO_NAMES, GivenNames
from shardmerge.worker.ddl.decide.recorded_tracks import recorded
from shardmerge.worker.ddl.decide.stream_tables import StreamTables, after_events, with_tables
from shardmerge.worker.ddl.decide.track import (
    Changed,
    ChangedLater,
    Elsewhere,
    Event,
    LaterStructure,
    Leaving,
    NamedElsewhere,
    NameUsed,
    Own,
    ParkedAt,
    Removed,
    TableChange,
    Track,
    name_of,
)
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.dropped_columns import Member
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import AwayName
from shardmerge.worker.target.records.shadow_tables import ShadowRecord
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION


@dataclass(slots=True)
class ExecutedAtTarget:
    """What was executed at the target for a statement, to be recorded with its changes.

    ``subjects``: lock names under which statements were begun there. ``rename_marks``: those of them that left a marker
    table. ``joined``: targets that have become the schema join of their shard tables. ``dropped``: see
    worker/target/records/dropped_columns.py. ``shadow_records``: see worker/target/records/shadow_tables.py, None for
    records to delete.
    """

    subjects: set[str] = field(default_factory=set[str])
    rename_marks: set[str] = field(default_factory=set[str])
    joined: set[TargetTable] = field(default_factory=set[TargetTable])
    dropped: dict[Member, frozenset[str]] = field(default_factory=dict[Member, frozenset[str]])
    shadow_records: dict[TableName, ShadowRecord | None] = field(default_factory=dict[TableName, ShadowRecord | None])


@dataclass(frozen=True, slots=True)
class CreatedElsewhere:
    """A new table of another stream. ``table``: one that its structure is like, until that stream creates it."""

    record: AwayName
    table: Table


@dataclass(frozen=True, slots=True)
class NameChanges:
    """How a statement changes the names that other streams have.

    ``given``: of the tables that other streams have; in the stream of joining tables: of those that this one has.
    ``created``: the new table that another stream creates. ``dropped``: the names of other streams' tables that the
    statement drops.
    """

    given: GivenNames = NO_NAMES
    created: CreatedElsewhere | None = None
    dropped: frozenset[TableName] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.given or self.dropped or self.created is not None)


@dataclass(slots=True)
class StatementChanges:
    """The changes of one statement, and of those that are executed with it; recorded in one transaction.

    ``before``: the tables before the statement. ``numbers``: for new tables; ``taken``: those that this statement has
    taken. ``tables``: what becomes of the stream's tables, by number. ``one_lane``: by target, whether one lane has to
    apply its rows from now on.
    """

    before: StreamTables
    numbers: TableNumbers
    taken: list[int] = field(default_factory=list[int])
    tables: dict[int, TableChange] = field(default_factory=dict[int, TableChange])
    one_lane: dict[TargetTable, bool] = field(default_factory=dict[TargetTable, bool])
    names: NameChanges = NameChanges()
    executed: ExecutedAtTarget = field(default_factory=ExecutedAtTarget)

    # --- what the statement does

    def take_number(self) -> int:
        """A number for a new shard table."""
        self.taken.append(self.numbers.take())
        return self.taken[-1]

    def change(self, plan: TablePlan, creation: CreateStatement) -> None:
        """The shard table has this structure after the statement."""
        changed, known = Changed(plan, creation), self.tables.get(plan.shard)
        if isinstance(known, ParkedAt):  # it is parked under its new name
            self.tables[plan.shard] = replace(known, changed=changed, name=name_of(plan))
        else:
            self.tables[plan.shard] = changed

    def change_later(self, later: LaterStructure, creation: CreateStatement) -> None:
        """The shard table has this structure after a later statement, which the lanes have not reached."""
        self.tables[later.plan.shard] = ChangedLater(later, creation)

    def remove(self, number: int) -> None:
        """The shard table takes no further part."""
        self.tables[number] = Removed(self._changed(number))

    def park(self, item: Parked) -> None:
        """The shard table is parked at the statement."""
        changed = self._changed(item.number)
        plan = self.before.plans[item.number] if changed is None else changed.plan
        self.tables[item.number] = ParkedAt(item, name_of(plan), changed=changed)

    def park_later(self, parked: ParkedAt, leaving: Leaving) -> None:
        """The shard table, which is ``parked``, leaves the stream at a later statement."""
        self.tables[parked.parked.number] = replace(parked, leaving=leaving)

    def leave_table(self, name: TableName, place: StatementPlace, owner: int) -> None:
        """Leave the new table ``name``, which the statement at ``place`` creates, to the stream of table ``owner``. It
        gets its number here, and its structure when that stream creates it."""
        number = self.take_number()
        like = replace(self.before.tables[owner], schema=name[0], name=name[1])
        self.names = replace(self.names, created=CreatedElsewhere(AwayName(number, *name, place, owner), like))

    def detach_renamed(self) -> None:
        """Remove the tables of this stream whose names belong to another stream after the statement. An operator or a
        filter has skipped their part of it. A name that no table of the main stream has taken stays another stream's:
        a table that joins may have begun after the statement."""
        given, is_main = self.names.given, self.before.is_main
        gone = given.gained.keys() if is_main else given.lost
        if is_main and given.lost:
            used = set(map(name_of, self.plans_before_removals.values()))
            lost = frozenset(given.lost & (used | set(given.gained.values())))
            self.names = replace(self.names, given=replace(given, lost=lost))
        if gone:
            for number, plan in self.plans_before_removals.items():
                if name_of(plan) in gone and not isinstance(self.tables.get(number), ParkedAt):
                    self.remove(number)

    def leave_to_copy(self, statement: Statement, resume_at: SourcePosition, now: float) -> None:
        """Let the tables leave the stream whose copy ``statement`` has interrupted, unless it parks or removes them.
        ``resume_at``: the end of its group; ``now``: Unix seconds."""
        for number, item in self.before.copies.items():
            if item.offset <= statement.group_start and not isinstance(self.tables.get(number), Removed | ParkedAt):
                self.park(
                    Parked(
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
                )

    # --- what it has done so far

    @property
    def parked(self) -> dict[int, ParkedAt]:
        return {number: change for number, change in self.tables.items() if isinstance(change, ParkedAt)}

    @property
    def parked_records(self) -> dict[int, Parked]:
        return {number: change.parked for number, change in self.parked.items()}

    @property
    def changed(self) -> dict[int, Changed]:
        """The tables that the statement creates, alters or renames, without those that it removes."""
        return {
            number: changed
            for number, change in self.tables.items()
            if not isinstance(change, Removed) and (changed := self._changed(number)) is not None
        }

    @property
    def removed(self) -> frozenset[int]:
        return frozenset(number for number, change in self.tables.items() if isinstance(change, Removed))

    @property
    def plans(self) -> dict[int, TablePlan]:
        """The stream's tables with the changes so far, without those that are removed; parked ones are among them."""
        removed = self.removed
        return {number: plan for number, plan in self.plans_before_removals.items() if number not in removed}

    @property
    def plans_before_removals(self) -> dict[int, TablePlan]:
        plans = {number: changed.plan for number in self.tables if (changed := self._changed(number)) is not None}
        return {**self.before.plans, **plans}

    def creation_of(self, number: int) -> CreateStatement | None:
        """The CREATE TABLE that the statement has made of the table so far."""
        changed = self._changed(number)
        return None if changed is None else changed.creation

    def _changed(self, number: int) -> Changed | None:
        match self.tables.get(number):
            case Changed() as changed:
                return changed
            case Removed(changed=changed) | ParkedAt(changed=changed):
                return changed
            case _:
                return None

    # --- what is recorded

    @property
    def structures(self) -> dict[int, tuple[Table, CreateStatement]]:
        """The structures to be recorded, by number."""
        found: dict[int, tuple[Table, CreateStatement]] = {}
        for number, change in self.tables.items():
            if isinstance(change, ChangedLater):
                found[number] = change.later.plan.table, change.creation
            elif (changed := self._changed(number)) is not None:
                found[number] = changed.plan.table, changed.creation
        return found

    @property
    def recorded_tables(self) -> dict[int, Table]:
        """The tables to be recorded, by number: those of :attr:`structures`, and a new one of another stream."""
        found = {number: table for number, (table, _) in self.structures.items()}
        if (created := self.names.created) is not None:
            found[created.record.number] = created.table
        return found

    def apply(self) -> StreamTables:
        """The stream's tables after the statement."""
        before, given = self.before, self.names.given
        parked = frozenset(change.name for change in self.parked.values())
        if before.is_main:
            events: Mapping[int, Event] = {**self.tables, **self._named_elsewhere()}
            created = self.names.created
            new = (
                frozenset[TableName]() if created is None else frozenset(((created.table.schema, created.table.name),))
            )
            scope = replace(before.scope, others=given.apply(before.scope.others) | new | parked)
        else:
            made = {name_of(item.plan) for number, item in self.changed.items() if number not in before.plans}
            only = (given.apply(before.scope.only or frozenset()) | made) - parked
            events = {**self.tables, **self._dropped_names(only)}
            scope = replace(before.scope, only=only)
        tracks = after_events(before.tracks, events, is_main=before.is_main)
        return self._with_facts(tracks, scope)

    def _named_elsewhere(self) -> dict[int, NamedElsewhere]:
        """The tables of other streams whose names the statement changes. Of the main stream."""
        names, given = self.names, self.names.given
        if not names:
            return {}
        before = self.before.names_elsewhere
        after = {name: number for name, number in before.items() if name not in given.lost}
        for name, origin in given.gained.items():
            number = before.get(origin, before.get(name))
            if number is not None:  # a shadow table has none, and takes the name of its table
                after[name] = number
        found: dict[int, NamedElsewhere] = {}
        if (created := names.created) is not None:
            name = created.table.schema, created.table.name
            after[name] = created.record.number
            found[created.record.number] = NamedElsewhere(name, created.record)
        new_names = {number: name for name, number in after.items()}
        exist = {after.get(name) for name in given.gained}
        for number in before.values():
            track, name = self.before.tracks[number], new_names.get(number)
            if not isinstance(track, Elsewhere):
                continue
            record = track.record
            if name != track.name:
                schema, table = name or ("", "")
                record = replace(record or AwayName(number, "", ""), schema=schema, table=table, dropped=False)
            elif record is not None and number in exist:
                record = replace(record, dropped=False)
            if name in names.dropped:
                record = replace(record or AwayName(number, *name), dropped=True)
            if (name, record) != (track.name, track.record):
                found[number] = NamedElsewhere(name, record)
        return found

    def _dropped_names(self, only: frozenset[TableName]) -> dict[int, Removed | NameUsed]:
        """What becomes of the names of dropped tables: the stream of joining tables keeps them until other tables have
        them. ``only``: the names that it has after the statement."""
        before = self.before
        removed = {name_of(before.plans[number]): number for number in self.removed if number in before.plans}
        if not removed and not before.dropped:
            return {}
        parked = self.parked
        used = {name_of(plan) for number, plan in self.plans.items() if number not in parked}
        kept = {name for name in (*before.dropped, *removed) if name in only and name not in used}
        ended = {number: NameUsed() for name, number in before.dropped.items() if name not in kept or name in removed}
        return ended | {number: Removed(keeps_name=name) for name, number in removed.items() if name in kept}

    def _with_facts(self, tracks: dict[int, Track], scope: TableScope) -> StreamTables:
        """``tracks`` with what holds for their targets as a whole, and what is recorded of them."""
        before, one_lane = self.before, self.one_lane
        lacking = before.partitioning.may_lack_rows
        for number in tracks if one_lane else self.changed:
            if isinstance(track := tracks.get(number), Own):
                plan = _with_facts(track.plan, one_lane, lacking)
                tracks[number] = track if plan is track.plan else replace(track, plan=plan)
        own = [track.plan for track in tracks.values() if isinstance(track, Own)]
        partitioning = replace(
            before.partitioning,
            one_lane=frozenset(plan.target_name for plan in own if plan.one_lane),
            may_lack_rows=lacking.union(plan.shard for plan in own if plan.may_lack_rows),
        )
        tables = with_tables(before.tables, self.recorded_tables)
        return StreamTables(tables, tracks, recorded(partitioning, tracks), scope)


def _with_facts(plan: TablePlan, one_lane: Mapping[TargetTable, bool], may_lack_rows: frozenset[int]) -> TablePlan:
    """The same object where nothing changes: thousands of plans stay as they are."""
    wanted = one_lane.get(plan.target, plan.one_lane) if one_lane else plan.one_lane
    lacks = plan.may_lack_rows or plan.shard in may_lack_rows
    if wanted == plan.one_lane and lacks == plan.may_lack_rows:
        return plan
    return replace(plan, one_lane=wanted, may_lack_rows=lacks)
