"""Models the steps of one source's worker in the sharding DDL model. A kill is possible between any two steps.

The decisions are the program's own: which events concern a stream (TableScope, RoutedScope, StatementPlace), the
actions and the result of a statement (actions_of, StatementChanges), what is published and what a lock requires
(worker/ddl/locks/lock_protocol.py), the next step of a statement that runs once (run_once.next_step), which tables wait
(ParkedQueue), the next statements of released tables (next_statements), their stream (replay_of, stream_tables,
joining_after), where it ends (is_one_place, is_after_statements, with_joined), and the state after a restart
(excluded_tables, own_shards).

The model replaces the code that carries them out, and the servers. Each transaction of the program is one step, as is
each statement at the target; a kill loses the state that is only in memory. A killed worker restarts at once: what
happens while it is down may as well happen before its next step. A statement that was running at the kill then has run
or has not: the next run waits for it. A stream has one lane, which commits rows one by one; the streams may be merged
wherever both are at the same place, whether the relay log ends there or not. A pass of the lock agent uses the locks as
they are when it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from shardmerge.master.ddl_lock.situation import Lock
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide import next_statements
from shardmerge.worker.ddl.decide.actions import Alter, DdlContext, ShardTarget, actions_of
from shardmerge.worker.ddl.decide.next_statements import WaitingTable
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.decide.statement_changes import StatementChanges
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Elsewhere, Leaving, own_tracks
from shardmerge.worker.ddl.execute import run_once
from shardmerge.worker.ddl.execute.run_once import Begun, NextStep
from shardmerge.worker.ddl.structure.structure_digest import digest_of
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.replicate.join import replay, stream_state
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.rules.table_window import WindowCursor
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import partitioning_for
from tests.unit.shard_ddl import shard_reports
from tests.unit.shard_ddl.shard_log import (
    CONFIG,
    DEALING,
    FIRST,
    RULES,
    SCHEMA,
    TASK,
    BrokenRuleError,
    Columns,
    DdlEvent,
    Event,
    RowEvent,
    columns_of,
    creation_of,
    name_of,
    offset_of,
    place_of,
    run_at,
)
from tests.unit.shard_ddl.shard_reports import duty_of, members_of, parked_at, ran_at, report_of_members
from tests.unit.shard_ddl.shard_state import (
    Durable,
    Executes,
    Half,
    Look,
    Process,
    Releases,
    Shared,
    Source,
    Stands,
    Stream,
    plan_of,
    stands_of,
    stream_tables_of,
    tables_of,
    waiting_of,
)

Step = tuple[str, Source, Shared]
KILLED = "is killed"


@dataclass(frozen=True, slots=True)
class Ways:
    """Deviations from the program, to check that the model detects them.

    ``torn_look``: the lock agent reads the records at two moments. ``torn_passing``: a statement is recorded as
    executed before its table is recorded as parked. ``early_release``: a worker releases tables while their lock is
    executing. ``forgets_begun``: the record that a statement has begun is removed before its result is recorded.
    ``parks_early``: the lock agent regards a table as parked although the lanes still apply its rows. ``leaves_rows``:
    a table is parked again although it has rows before its next statement.
    """

    torn_look: bool = False
    torn_passing: bool = False
    early_release: bool = False
    forgets_begun: bool = False
    parks_early: bool = False
    leaves_rows: bool = False


class Worker:
    """The steps of one source's worker. ``log``: the source's whole binlog."""

    def __init__(self, number: int, log: tuple[Event, ...], ways: Ways) -> None:
        self.number = number
        self.name = f"s{number}"
        self.log = log
        self.ways = ways
        self._tables = 1 + max(event.table for event in log)

    def first(self) -> Source:
        numbers = frozenset(range(self._tables))
        durable = Durable(
            replace(DEALING, shards=numbers), None, 0, None, None, None, (FIRST,) * self._tables, (), None, frozenset()
        )
        return Source(durable, self._started(durable, FIRST), None)

    def steps(self, source: Source, shared: Shared) -> Iterator[Step]:
        """Generate the possible next steps; raises BrokenRuleError."""
        yield from self._stream(source, shared, is_own=True)
        if source.process.join is not None:
            yield from self._stream(source, shared, is_own=False)
            yield from self._adopts(source, shared)
        elif source.process.again:
            yield self._parked_again(source, shared)
        else:
            yield from self._replays(source, shared)
            yield from self._parks_again(source, shared)
        yield from self._agent(source, shared)
        fresh = self._started(source.durable, shared.columns)
        if fresh != source.process:
            yield KILLED, source._replace(process=fresh), shared

    def has_ended(self, source: Source) -> bool:
        """Return whether the subtask's own lanes have applied all events."""
        durable, process = source.durable, source.process
        at_end = durable.main == process.main.at == len(self.log)
        whole = durable.dealing.shards == frozenset(range(self._tables))
        return at_end and whole and not (durable.parked or durable.joining or process.waiting or process.look)

    # --- a start

    def _started(self, durable: Durable, target: Columns) -> Process:
        """Return the memory of a new run (worker/daemon/subtask/run.py)."""
        tables = tables_of(durable.columns)
        numbers = [item.number for item in durable.parked]
        others = stream_state.excluded_tables(tables, durable.joining, numbers)
        shards = stream_state.own_shards(tables, durable.dealing, others)
        plans = self._plans(durable, shards, target)
        wanted = partitioning_for(CONFIG, 1, plans).inherit(durable.dealing)
        parked = {item.number: item for item in durable.parked if not item.released}
        places = {number: item.place for number, item in parked.items()}
        departing = {
            plan.shard: Leaving(plan, offset_of(parked[plan.shard].resume_at.pos), places[plan.shard])
            for plan in durable.dealing.leaving_plans(self.name, tables, places)
        }
        elsewhere = {number: Elsewhere(name) for name, number in others.items()}
        tracks = own_tracks(plans) | elsewhere | departing
        begin = StreamTables(tables, tracks, wanted, TableScope(RULES, frozenset(others)))
        if begin.partitioning != durable.dealing:
            raise BrokenRuleError(f"the lanes had {durable.dealing.shards} and begin with {begin.partitioning.shards}")
        join = self._joined(durable, durable.joining, target) if durable.joining is not None else None
        waiting = tuple((item, item.resume_at.pos) for item in durable.parked)
        return Process(Stream(durable.main, stands_of(begin)), join, waiting)

    def _joined(self, durable: Durable, joining: Joining, target: Columns) -> Stream:
        plans = {plan.shard: plan for plan in self._plans(durable, joining.numbers, target)}
        entries = {entry.number: offset_of(entry.place.position.pos + 1) for entry in joining.entries}
        begin = stream_state.stream_tables(joining, RULES, tables_of(durable.columns), plans, entries)
        assert durable.join is not None
        return Stream(durable.join, stands_of(begin), None, (joining, durable.columns))

    def _plans(self, durable: Durable, shards: frozenset[int], target: Columns) -> tuple[TablePlan, ...]:
        """Return the plans; they are checked against the target, unless a statement has begun there (make_plans)."""
        for number in sorted(shards):
            if durable.begun is None and set(durable.columns[number]) != set(target):
                raise BrokenRuleError(f"{name_of(number)} begins as {durable.columns[number]}, its target is {target}")
        return tuple(plan_of(self.name, number, durable.columns[number]) for number in sorted(shards))

    # --- streams

    def _stream(self, source: Source, shared: Shared, *, is_own: bool) -> Iterator[Step]:
        durable, process = source.durable, source.process
        stream = process.main if is_own else process.join
        assert stream is not None
        verb = "" if is_own else "replay "

        def became(
            durable: Durable, stream: Stream, waiting: tuple[tuple[Parked, int | None], ...] | None = None
        ) -> Source:
            after = process._replace(main=stream) if is_own else process._replace(join=stream)
            after = after if waiting is None else after._replace(waiting=waiting)
            return source._replace(durable=durable, process=after)

        def committed(durable: Durable, at: int) -> Durable:
            return durable._replace(main=at) if is_own else durable._replace(join=at)

        if stream.recorded is not None:
            behind, parked = stream.recorded
            waiting = (*process.waiting, *((item, item.resume_at.pos) for item in parked))
            executed = max((item.resume_at.pos for item in parked), default=stream.at + 1)
            after = stream._replace(at=stream.at + 1, stands=behind, recorded=None, executed=executed)
            yield f"{verb}goes on behind {stream.at}", became(durable, after, waiting), shared
            return
        at = stream.at
        is_committed = (durable.main if is_own else durable.join) == at
        if not is_committed:
            yield f"{verb}commits {at}", became(committed(durable, at), stream), shared
        if at == len(self.log):
            return
        event = self.log[at]
        if not self._is_affair(durable, stream, at, is_own=is_own):
            while at < len(self.log) and not self._is_affair(durable, stream, at, is_own=is_own):
                at += 1
            yield f"{verb}passes over to {at}", became(durable, stream._replace(at=at)), shared
        elif isinstance(event, RowEvent):
            applied = self._applied(durable, stream.stands, event, shared)
            yield f"{verb}applies {at}", became(committed(applied, at + 1), stream._replace(at=at + 1)), shared
        elif is_committed:
            yield from (
                (f"{verb}records {at}", became(after, stream._replace(recorded=recorded)), shared)
                for after, recorded in self._passing(durable, stream, event, is_own=is_own)
            )

    def _is_affair(self, durable: Durable, stream: Stream, at: int, *, is_own: bool) -> bool:
        """Return whether the stream must process the event."""
        event = self.log[at]
        if isinstance(event, RowEvent):
            return _holds(stream.stands, self.name, event.table, at)
        passed = durable.passed if is_own else durable.join_passed
        if at < stream.executed or (passed is not None and passed.covers(event.statement)):
            return False
        return _stops_at(stream.stands, self.name, event)

    def _applied(self, durable: Durable, stands: Stands, event: RowEvent, shared: Shared) -> Durable:
        tables = stream_tables_of(stands, self.name)
        plan = {each.shard: each for each in (*tables.plans_in_order, *tables.timed_plans)}.get(event.table)
        if plan is None:
            raise BrokenRuleError(f"{event.key} is a stream's affair, which has no plan for it")
        written = tuple(name for name, _ in event.image)
        if columns_of(plan.table) != written:
            raise BrokenRuleError(f"{event.key} is {written} and is read as {columns_of(plan.table)} (I1)")
        if any(key == event.key for key, _ in durable.rows):
            raise BrokenRuleError(f"{event.key} is applied twice (I5)")
        if event.level != len(shared.ran):
            raise BrokenRuleError(f"{event.key} of level {event.level} comes behind {shared.ran} (I6)")
        return durable._replace(rows=durable.rows | {(event.key, len(shared.ran))})

    def _passing(
        self, durable: Durable, stream: Stream, event: DdlEvent, *, is_own: bool
    ) -> Iterator[tuple[Durable, tuple[Stands, tuple[Parked, ...]]]]:
        """Generate the records of a statement, like StatementDriver.act."""
        before = stream_tables_of(stream.stands, self.name).at_barrier(event.statement.group_start)
        passing = StatementChanges(before, TableNumbers(len(before.tables)))
        statement = event.statement
        for action in actions_of(event.ddl, statement, _scene(stands_of(before), self.name)):
            assert isinstance(action, Alter)
            passing.park(parked_at(event))
        yield from self._recording(durable, stream, passing, statement, is_own=is_own)
        # As many of the following statements as the relay log has (worker/ddl/park_ahead.py).
        for later in self.log[stream.at + 1 :] if is_own else ():
            if isinstance(later, DdlEvent) and later.table not in passing.parked:
                plan = before.plans.get(later.table)
                if plan is None:
                    continue
                statement = later.statement
                passing.park(parked_at(later))
                leaving = Leaving(plan, statement.group_end, StatementPlace.of(statement))
                passing.park_later(passing.parked[later.table], leaving)
                yield from self._recording(durable, stream, passing, statement, is_own=is_own)

    def _recording(
        self, durable: Durable, stream: Stream, passing: StatementChanges, last: Statement, *, is_own: bool
    ) -> Iterator[tuple[Durable, tuple[Stands, tuple[Parked, ...]]]]:
        """Generate the records of a statement, and of the following ones up to ``last``."""
        place = StatementPlace.of(last)
        joining = stream.base[0] if stream.base is not None else None
        result = passing.apply()
        if found := result.violations(passing.before.tracks):
            raise BrokenRuleError("; ".join(found))
        stands, parked = stands_of(result), tuple(change.parked for change in passing.parked.values())
        after = durable._replace(parked=_by_number((*durable.parked, *parked)))
        if is_own:
            after = after._replace(dealing=result.partitioning, passed=place)
        else:
            assert joining is not None
            left = stream_state.joining_after(joining, result)
            after = after._replace(joining=left, join_passed=place)
        if self.ways.torn_passing and parked:
            yield after._replace(parked=durable.parked), (stands, parked)
        yield after, (stands, parked)

    # --- released tables

    def _replays(self, source: Source, shared: Shared) -> Iterator[Step]:
        """Start a stream for the released tables (worker/replicate/join/replay.py)."""
        durable, process = source.durable, source.process
        released = waiting_of(process.waiting).released()
        if not released:
            return
        self._plans(durable, frozenset(released), shared.columns)
        joining, offset = replay.replay_of(released, DEALING)
        after = durable._replace(
            joining=joining,
            join=offset.byte,
            parked=tuple(item for item in durable.parked if item.number not in released),
        )
        left = tuple(call for call in process.waiting if call[0].number not in released)
        begun = process._replace(join=self._joined(after, joining, shared.columns), waiting=left)
        yield f"begins to replay {sorted(released)}", source._replace(durable=after, process=begun), shared

    def _parks_again(self, source: Source, shared: Shared) -> Iterator[Step]:
        """Park the released tables without rows before their next statements there (worker/ddl/park_again.py)."""
        durable, process = source.durable, source.process
        released = waiting_of(process.waiting).released()
        if not released:
            return
        self._plans(durable, frozenset(released), shared.columns)
        waiting = {number: WaitingTable((SCHEMA, name_of(number)), at) for number, (_, at) in released.items()}
        first = min(table.begin.byte for table in waiting.values())
        statements = (event.statement for event in self.log[first:] if isinstance(event, DdlEvent))
        found = next_statements.next_statements(RULES, waiting, statements)
        again: list[Parked] = []
        for number, statement in found.items():
            at, event = statement.group_start.byte, self.log[statement.group_start.byte]
            assert isinstance(event, DdlEvent)
            between = self.log[waiting[number].begin.byte : at]
            if self.ways.leaves_rows or not any(isinstance(e, RowEvent) and e.table == number for e in between):
                again.append(parked_at(event))
        if not again:
            return
        others = (item for item in durable.parked if item.number not in {each.number for each in again})
        after = durable._replace(parked=_by_number((*others, *again)))
        numbers = [item.number for item in again]
        began = process._replace(again=tuple(again))
        yield f"parks {numbers} again", source._replace(durable=after, process=began), shared

    def _parked_again(self, source: Source, shared: Shared) -> Step:
        """Note the tables that are recorded as parked again: the lock agent may have released them since."""
        process = source.process
        calls = (*process.waiting, *((item, item.resume_at.pos) for item in process.again))
        return "has parked again", source._replace(process=process._replace(waiting=calls, again=())), shared

    def _adopts(self, source: Source, shared: Shared) -> Iterator[Step]:
        """Merge both streams when all lanes are at the same place (JoiningUnit)."""
        durable, process = source.durable, source.process
        main, join = process.main, process.join
        assert join is not None
        assert join.base is not None
        assert durable.join is not None
        if (
            main.recorded is not None
            or join.recorded is not None
            or any(item.at > join.at for item in join.stands.arriving)
        ):
            return
        if (main.at, join.at) != (durable.main, durable.join):
            return
        here = (_checkpoint(durable.main), _checkpoint(durable.join))
        if not stream_state.is_one_place(here):
            return
        if not stream_state.is_after_statements(here, (durable.passed, durable.join_passed)):
            return
        own = stream_tables_of(main.stands, self.name).at_barrier(offset_of(main.at))
        joined = stream_tables_of(join.stands, self.name)
        if durable.joining != stream_state.joining_after(join.base[0], joined):
            raise BrokenRuleError(f"what joins is recorded as {durable.joining}")
        both = own.with_joined(joined)
        if found := both.violations(own.tracks):
            raise BrokenRuleError("; ".join(found))
        after = durable._replace(dealing=both.partitioning, joining=None, join=None, join_passed=None)
        whole = process._replace(main=main._replace(stands=stands_of(both)), join=None)
        yield f"adopts at {main.at}", source._replace(durable=after, process=whole), shared

    # --- the lock agent

    def _agent(self, source: Source, shared: Shared) -> Iterator[Step]:
        durable, process = source.durable, source.process
        match process.look:
            case None:
                if self.ways.torn_look:
                    half = Half(durable.dealing, durable.joining)
                    yield "reads its row", source._replace(process=process._replace(look=half)), shared
                else:
                    yield from self._looked(source, Half(durable.dealing, durable.joining), shared)
            case Half() as half:
                yield from self._looked(source._replace(process=process._replace(look=None)), half, shared)
            case Look(report=report) if report != source.reported:
                yield "publishes", _reported(source._replace(reported=report)), shared
            case Look(duty=Releases(tables=tables)):
                yield f"releases {tables}", self._released(source, tables), shared
            case Look(duty=Executes() as duty, lock=lock):
                assert lock is not None
                yield from self._executes(source, duty, lock, shared)
            case Look():
                raise AssertionError("a look that comes to nothing")

    def _looked(self, source: Source, half: Half, shared: Shared) -> Iterator[Step]:
        durable = source.durable
        members = members_of(self.name, durable.columns, durable.parked, half, self._departing(durable))
        report = report_of_members(self.name, members, shared.run)
        found = duty_of(self.name, shared.lock, members, shared.run, early=self.ways.early_release)
        if report != source.reported or found is not None:
            look = Look(report, found, shared.lock if found is not None else None)
            yield "looks", source._replace(process=source.process._replace(look=look)), shared

    def _departing(self, durable: Durable) -> frozenset[int]:
        """Return the tables that are recorded as parked, but whose rows the lanes have not all committed."""
        leaving = {item.number: item.place for item in durable.dealing.leaving}
        if self.ways.parks_early:
            return frozenset()
        return frozenset(
            item.number
            for item in durable.parked
            if not item.released and leaving.get(item.number) == item.place and durable.main < item.resume_at.pos
        )

    def _released(self, source: Source, tables: tuple[int, ...]) -> Source:
        durable, process = source.durable, source.process
        columns = list(durable.columns)
        freed = [item for item in durable.parked if item.number in tables]
        for item in freed:
            columns[item.number] = run_at(columns[item.number], item.text)
        released = tuple(replace(item, released=True) for item in freed)
        others = (item for item in durable.parked if item.number not in tables)
        after = durable._replace(columns=tuple(columns), parked=_by_number((*others, *released)))
        waiting = (*process.waiting, *((item, None) for item in released))
        return source._replace(durable=after, process=process._replace(waiting=waiting, look=None))

    def _executes(self, source: Source, duty: Executes, lock: Lock, shared: Shared) -> Iterator[Step]:
        durable, process = source.durable, source.process
        if duty.runs and not duty.has_run:
            now = digest_of(creation_of(shared.columns))
            ran = source._replace(process=_did(process, duty))
            match run_once.next_step(durable.begun, lock.statement, now):
                case NextStep.BEGIN:
                    begun = durable._replace(begun=Begun(lock.statement, now))
                    yield "begins the statement", source._replace(durable=begun), shared
                case NextStep.HAS_RUN:
                    yield "finds that the statement has run", ran, shared
                case NextStep.RUN:
                    yield "runs the statement", ran, ran_at(shared, lock)
            return
        if self.ways.forgets_begun and durable.begun is not None:
            yield "forgets", source._replace(durable=durable._replace(begun=None)), shared
        after = source._replace(durable=durable._replace(begun=None), process=process._replace(look=None))
        yield "records the run", after, shared._replace(run=LockRun(lock.generation, lock.after))


def _did(process: Process, duty: Executes) -> Process:
    assert isinstance(process.look, Look)
    return process._replace(look=process.look._replace(duty=duty._replace(has_run=True)))


def _reported(source: Source) -> Source:
    """Return the source after it has published: a pass of the lock agent without a duty ends then."""
    look = source.process.look
    if isinstance(look, Look) and look.duty is None:
        return source._replace(process=source.process._replace(look=None))
    return source


def _by_number(items: tuple[Parked, ...]) -> tuple[Parked, ...]:
    return tuple(sorted(items, key=lambda item: item.number))


def _checkpoint(at: int) -> Checkpoint:
    return Checkpoint(0, 1, 0, "relay", offset_of(at), 0, place_of(at), 0.0)


@lru_cache(None)
def _holds(stands: Stands, source: str, table: int, at: int) -> bool:
    tables = stream_tables_of(stands, source)
    windows = WindowCursor(tables.windows)
    windows.advance(offset_of(at))
    if not windows.is_open((SCHEMA, name_of(table))):
        return False
    timed = {plan.shard for plan in tables.timed_plans}
    return table in timed or tables.scope.holds(SCHEMA, name_of(table))


@lru_cache(None)
def _stops_at(stands: Stands, source: str, event: DdlEvent) -> bool:
    tables = stream_tables_of(stands, source)
    if not RoutedScope(tables.statements)(event.statement):
        return False
    return RoutedScope(tables.at_barrier(event.statement.offset).scope)(event.statement)


def _is_routed(schema: str, table: str) -> bool:
    return RULES.route(schema, table) is not None


def _is_view(_schema: str, _table: str) -> bool:
    return False


@lru_cache(None)
def _scene(stands: Stands, source: str) -> DdlContext:
    plans = stream_tables_of(stands, source).plans.values()
    shards = {(plan.table.schema, plan.table.name): ShardTarget(plan, len(plans)) for plan in plans}
    return DdlContext(TASK, source, shards, _is_routed, _is_view)


def forget() -> None:
    """Forget the program's cached answers: a test is about to change them."""
    for known in (_holds, _stops_at, _scene):
        known.cache_clear()
    shard_reports.forget()
