"""Simulates the steps of one source's worker. A kill is possible between any two steps.

The lock agent's part is in agent_steps.py. The decisions are the program's own: which events concern a stream
(TableScope, RoutedScope, StatementPlace), the actions and the result of a statement (actions_of, StatementChanges),
what is published and what a lock requires (worker/ddl/locks/lock_protocol.py), the operator's overrides
(parked_override.py), the next step of a statement that runs once (run_once.next_step), which tables wait (ParkedQueue),
the next statements of released tables (next_statements), their stream (replay_of, stream_tables, joining_after), where
it ends (is_one_place, is_after_statements, with_joined), and the state after a restart (excluded_tables, own_shards,
known_away_names).

The simulation replaces the code that carries them out, and the servers. Each transaction of the program is one step, as
is each statement at the target; a kill loses the state that is only in memory. A statement that was running at the kill
then has run or has not: the next run waits for it. Lanes commit rows one by one; the streams may be merged wherever
both are at the same place, whether the relay log ends there or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide import next_statements
from shardmerge.worker.ddl.decide.next_statements import WaitingTable
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Elsewhere, Leaving, own_tracks
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.replicate.join import replay, stream_state
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import partitioning_for
from tests.simulator import worker_reports, worker_state
from tests.simulator.agent_steps import AgentSteps, Step, Surroundings, Ways, by_number
from tests.simulator.source_log import (
    CONFIG,
    DEALING,
    FIRST,
    RULES,
    SCHEMA,
    BrokenRuleError,
    DdlEvent,
    Event,
    RowEvent,
    Structure,
    columns_of,
    name_of,
    offset_of,
    place_of,
)
from tests.simulator.statement_steps import StatementSteps
from tests.simulator.worker_state import (
    Announces,
    Calls,
    Commits,
    Durable,
    Frees,
    Lanes,
    Parks,
    Process,
    Shared,
    Source,
    Stream,
    StreamState,
    Written,
    plan_of,
    queue_of,
    state_of,
    tables_of,
)

Part = Callable[[], Iterator[Step]]
KILLED = "is killed"


class Worker:
    """The steps of one source's worker. ``log``: the source's whole binlog; ``tables``: its first shard tables."""

    def __init__(
        self,
        number: int,
        log: Sequence[Event],
        tables: int,
        lanes: int = 1,
        around: Surroundings | None = None,
        ways: Ways | None = None,
    ) -> None:
        self.number, self.name, self.log, self.tables, self.lanes = number, f"s{number}", log, tables, lanes
        self.around, self.ways = around or Surroundings(), ways or Ways()
        self._agent = AgentSteps(self.name, self.around, self.ways)

    def first(self) -> Source:
        numbers = frozenset(range(self.tables))
        dealing = replace(DEALING[self.lanes], shards=numbers)
        structures = tuple(Structure(name_of(number), FIRST) for number in sorted(numbers))
        durable = Durable(dealing, None, (0,) * self.lanes, None, None, None, structures, (), frozenset())
        return Source(durable, self.started(durable, first_shared()), None)

    def steps(self, source: Source, shared: Shared) -> Iterator[Step]:
        """Generate the possible next steps; raises BrokenRuleError."""
        for part in self.parts(source, shared):
            yield from part()
        fresh = self.started(source.durable, shared)
        if fresh != source.process:
            yield KILLED, source._replace(process=fresh), self.released(shared)

    def parts(self, source: Source, shared: Shared) -> Iterator[Part]:
        """Generate the parts of the worker, each with its next steps."""
        process = source.process
        for lane in range(self.lanes):
            yield lambda lane=lane: self._lane(source, shared, lane, is_own=True)
        yield lambda: self._barrier(source, shared, is_own=True)
        if process.join is not None:
            for lane in range(self.lanes):
                yield lambda lane=lane: self._lane(source, shared, lane, is_own=False)
            yield lambda: self._barrier(source, shared, is_own=False)
            yield lambda: self._adopts(source, shared)
        elif process.again:
            yield lambda: self._parked_again(source, shared)
        else:
            yield lambda: self._replays(source, shared)
            yield lambda: self._parks_again(source, shared)
        yield lambda: self._agent.steps(source, shared)

    def released(self, shared: Shared) -> Shared:
        """Return the shared state after a kill: the server's lock of the statement ends with the connection."""
        return shared._replace(holder="") if shared.holder == self.name else shared

    def has_ended(self, source: Source) -> bool:
        """Return whether the subtask's own lanes have applied all events."""
        durable, process = source.durable, source.process
        at_end = set(durable.main) == set(process.main.lanes) == {len(self.log)}
        return at_end and not (durable.parked or durable.joining or process.waiting or process.look)

    # --- a start

    def started(self, durable: Durable, shared: Shared, *, knows_lanes: bool = True) -> Process:
        """Return the memory of a new run (worker/daemon/subtask/phases/replicate_phase.py)."""
        tables = tables_of(durable.tables)
        numbers = [item.number for item in durable.parked]
        named = stream_state.known_away_names(durable.dealing, durable.joining, numbers)
        others = stream_state.excluded_tables(tables, durable.joining, numbers, named)
        shards = stream_state.own_shards(tables, durable.dealing, others)
        plans = self._plans(durable, shards, shared)
        wanted = replace(partitioning_for(CONFIG, self.lanes, plans).inherit(durable.dealing), away=named)
        parked = {item.number: item for item in durable.parked if not item.released}
        places = {number: item.place for number, item in parked.items()}
        leaving = {
            plan.shard: Leaving(plan, offset_of(parked[plan.shard].resume_at.pos), places[plan.shard])
            for plan in durable.dealing.leaving_plans(self.name, tables, places)
        }
        elsewhere = {number: Elsewhere(name) for name, number in others.items()}
        elsewhere |= {item.number: Elsewhere(item.name, item) for item in named}
        tracks = own_tracks(plans) | elsewhere | leaving
        begin = StreamTables(tables, tracks, wanted, TableScope(RULES, frozenset(others)))
        if begin.partitioning.shards != durable.dealing.shards:
            raise BrokenRuleError(f"the lanes had {durable.dealing.shards} and begin with {begin.partitioning.shards}")
        join = self._joined(durable, durable.joining, shared) if durable.joining is not None else None
        announced = tuple((number, parked[number].resume_at.pos) for number in sorted(leaving))
        waiting: Calls = (Announces(announced),) if announced else ()
        waiting += (Parks(durable.parked),) if durable.parked else ()
        main = Stream(durable.main, state_of(begin, self.name))
        return Process(main, join, waiting, knows_lanes=knows_lanes)

    def _joined(self, durable: Durable, joining: Joining, shared: Shared) -> Stream:
        plans = {plan.shard: plan for plan in self._plans(durable, joining.numbers, shared)}
        entries = {entry.number: offset_of(entry.place.position.pos + 1) for entry in joining.entries}
        begin = stream_state.stream_tables(joining, RULES, tables_of(durable.tables), plans, entries)
        assert durable.join is not None
        return Stream(durable.join, state_of(begin, self.name), None, joining)

    def _plans(self, durable: Durable, shards: frozenset[int], shared: Shared) -> tuple[TablePlan, ...]:
        """Return the plans; they are checked against the target, unless a statement has begun there (make_plans)."""
        target, is_checked = set(shared.columns[-1]), all(source != self.name for source, _, _ in shared.begun)
        for number in sorted(shards):
            name, columns = durable.tables[number]
            if is_checked and not (set(columns) <= target if shared.forced else set(columns) == target):
                raise BrokenRuleError(f"{name} begins as {columns}, its target is {shared.columns[-1]}")
        return tuple(plan_of(self.name, number, durable.tables[number]) for number in sorted(shards))

    # --- streams

    def _lane(self, source: Source, shared: Shared, lane: int, *, is_own: bool) -> Iterator[Step]:
        stream, committed = _stream_of(source, is_own=is_own)
        if stream.recorded is not None:
            return
        verb, at = "" if is_own else "replay ", stream.lanes[lane]
        if committed[lane] != at:
            yield f"{verb}commits {at}", _committed(source, lane, at, is_own=is_own), shared
        if at == len(self.log):
            return
        if not self._is_affair(source, at, lane, is_own=is_own):
            while at < len(self.log) and not self._is_affair(source, at, lane, is_own=is_own):
                at += 1
            yield f"{verb}passes over to {at}", _moved(source, lane, at, is_own=is_own), shared
            return
        event = self.log[at]
        if isinstance(event, RowEvent):
            durable = self._applied(source.durable, stream.state, event, at, shared)
            if durable is not None:
                after = _moved(source._replace(durable=durable), lane, at + 1, is_own=is_own)
                yield f"{verb}applies {at}", _committed(after, lane, at + 1, is_own=is_own), shared

    def _barrier(self, source: Source, shared: Shared, *, is_own: bool) -> Iterator[Step]:
        """Execute the statement at which all lanes are, or resume after it."""
        stream, committed = _stream_of(source, is_own=is_own)
        process, at, verb = source.process, stream.lanes[0], "" if is_own else "replay "
        if stream.recorded is not None:
            state, calls, executed = stream.recorded
            after = stream._replace(lanes=(at + 1,) * self.lanes, state=state, recorded=None, executed=executed)
            after = process._replace(main=after) if is_own else process._replace(join=after)
            after = after._replace(waiting=process.waiting + calls)
            yield f"{verb}goes on after {at}", source._replace(process=after), shared
            return
        if {*stream.lanes, *committed} != {at} or at == len(self.log):
            return
        event = self.log[at]
        if isinstance(event, DdlEvent) and self._is_affair(source, at, 0, is_own=is_own):
            yield from self._records(source, shared, event, is_own=is_own)

    def _is_affair(self, source: Source, at: int, lane: int, *, is_own: bool) -> bool:
        """Return whether the lane must process the event."""
        event = self.log[at]
        stream, _ = _stream_of(source, is_own=is_own)
        if isinstance(event, RowEvent):
            return event.key.at % self.lanes == lane and stream.state.holds(event.name, at)
        passed = source.durable.passed if is_own else source.durable.join_passed
        if at < stream.executed or (passed is not None and passed.covers(event.statement)):
            return False
        return stream.state.stops_at(event)

    def _applied(
        self, durable: Durable, state: StreamState, event: RowEvent, at: int, shared: Shared
    ) -> Durable | None:
        """Return the records with the row; None: the target does not take it, because of an operator's decision."""
        plan = state.plan(event.name)
        if plan is None:
            raise BrokenRuleError(f"{event.key} is a row of a stream which has no plan for {event.name}")
        if columns_of(plan.table) != event.columns:
            raise BrokenRuleError(f"{event.key} is {event.columns} and is read as {columns_of(plan.table)} (I1)")
        if shared.forced and not set(event.columns) <= set(shared.columns[-1]):
            return None
        if not shared.forced and event.level != len(shared.ran):
            raise BrokenRuleError(f"{event.key} of level {event.level} comes after {shared.ran} (I6)")
        known = [row for row in durable.rows if row.key.table == event.table or row.number == plan.shard]
        if any((row.key.table, row.number) != (event.table, plan.shard) for row in known):
            raise BrokenRuleError(f"{event.key} gets the number {plan.shard} of another table")
        now = [row for row in known if row.key == event.key]
        if [row.at for row in now] != ([] if event.follows is None else [event.follows]):
            raise BrokenRuleError(f"{event.key} is applied twice or out of order: it is {now} (I5)")
        written = () if event.image is None else (Written(event.key, at, len(shared.ran), plan.shard),)
        return durable._replace(rows=durable.rows.difference(now).union(written))

    def _records(self, source: Source, shared: Shared, event: DdlEvent, *, is_own: bool) -> Iterator[Step]:
        durable, (stream, _) = source.durable, _stream_of(source, is_own=is_own)

        def park(at: DdlEvent, number: int) -> Parked:
            return self.around.parked(at, number, shared)

        met = StatementSteps(durable, stream.state, event, shared.columns[-1], park)
        if met.must_wait or (met.needs_main and not self._main_has_executed(source, event.statement)):
            return
        kept = frozenset(row for row in durable.rows if row.number not in met.removed)
        if kept != durable.rows:
            yield f"removes the rows of {met.removed}", source._replace(durable=durable._replace(rows=kept)), shared
            return
        ahead, last = self.around.ahead() if is_own else 0, event.statement
        if ahead is None:
            yield from self._recorded(source, shared, met, last, is_own=is_own)
            for last in met.park_ahead(self.log):
                yield from self._recorded(source, shared, met, last, is_own=is_own)
            return
        following = met.park_ahead(self.log)
        for _ in range(ahead):
            last = next(following, last)
        yield from self._recorded(source, shared, met, last, is_own=is_own)

    def _recorded(
        self, source: Source, shared: Shared, met: StatementSteps, last: Statement, *, is_own: bool
    ) -> Iterator[Step]:
        """Record a statement, and the following ones up to ``last``."""
        (stream, _), durable, changes = _stream_of(source, is_own=is_own), source.durable, met.changes
        result, place = changes.apply(), StatementPlace.of(last)
        state = state_of(result, self.name, met.before.tracks)
        parked = tuple(change.parked for change in changes.parked.values())
        leaving = tuple(
            (at, each.leaving.offset.byte) for at, each in changes.parked.items() if each.leaving is not None
        )
        tables = list(durable.tables)
        for number, table in sorted(changes.recorded_tables.items()):
            structure = Structure(table.name, columns_of(table))
            tables.extend([structure] * (number + 1 - len(tables)))
            tables[number] = structure
        after = durable._replace(tables=tuple(tables), parked=by_number((*durable.parked, *parked)))
        if is_own:
            after = after._replace(dealing=result.partitioning, passed=place)
        else:
            assert stream.base is not None
            after = after._replace(joining=stream_state.joining_after(stream.base, result), join_passed=place)
        calls: Calls = (Parks(parked),) if parked else ()
        waiting = (*source.process.waiting, Announces(leaving)) if leaving else source.process.waiting
        recorded = stream._replace(recorded=(state, calls, last.group_end.byte))
        process = source.process._replace(waiting=waiting)
        process = process._replace(main=recorded) if is_own else process._replace(join=recorded)
        name = f"{'' if is_own else 'replay '}records {met.event.statement.offset.byte} to {last.offset.byte}"
        if self.ways.torn_passing and parked:
            yield name, Source(after._replace(parked=durable.parked), process, source.reported), shared
        yield name, Source(after, process, source.reported), shared

    def _main_has_executed(self, source: Source, statement: Statement) -> bool:
        """Return whether the main stream is past the statement, as this run knows it."""
        at = statement.offset.byte
        return source.process.main.executed > at or min(source.durable.main) > at

    # --- released tables

    def _released_together(self, source: Source, shared: Shared) -> Mapping[int, tuple[Parked, RelayOffset]]:
        """Return the released tables that continue together, by number; their plans fit the target."""
        if not source.process.waiting:
            return {}
        released = replay.replayed_together(queue_of(source.process.waiting).released())
        if released:
            self._plans(source.durable, frozenset(released), shared)
        return released

    def _replays(self, source: Source, shared: Shared) -> Iterator[Step]:
        """Start a stream for the released tables (worker/replicate/join/replay.py)."""
        durable, process = source.durable, source.process
        released = self._released_together(source, shared)
        if not released:
            return
        joining, offset = replay.replay_of(released, DEALING[self.lanes])
        first = min(released.values(), key=lambda each: each[1])[0].place
        after = durable._replace(
            joining=joining,
            join=(offset.byte,) * self.lanes,
            join_passed=first if joining.entries else None,
            parked=tuple(item for item in durable.parked if item.number not in released),
        )
        left = _without(process.waiting, frozenset(released))
        begun = process._replace(join=self._joined(after, joining, shared), waiting=left)
        yield f"begins to replay {sorted(released)}", source._replace(durable=after, process=begun), shared

    def _parks_again(self, source: Source, shared: Shared) -> Iterator[Step]:
        """Park the released tables without rows before their next statements there (worker/ddl/park_again.py)."""
        durable, process = source.durable, source.process
        released = self._released_together(source, shared)
        if not released:
            return
        waiting = {
            number: WaitingTable((SCHEMA, durable.tables[number].name), at) for number, (_, at) in released.items()
        }
        first = min(table.begin.byte for table in waiting.values())
        statements = (event.statement for event in self.log[first:] if isinstance(event, DdlEvent))
        found = next_statements.next_statements(RULES, waiting, statements)
        again: list[Parked] = []
        for number, statement in found.items():
            at, event = statement.group_start.byte, self.log[statement.group_start.byte]
            name, between = waiting[number].name[1], self.log[waiting[number].begin.byte : at]
            if not isinstance(event, DdlEvent) or event.table < 0:
                continue
            if self.ways.leaves_rows or not any(isinstance(each, RowEvent) and each.name == name for each in between):
                again.append(self.around.parked(event, number, shared))
        if not again:
            return
        others = (item for item in durable.parked if item.number not in {each.number for each in again})
        after = durable._replace(parked=by_number((*others, *again)))
        began = process._replace(again=(Parks(tuple(again)),))
        numbers = [item.number for item in again]
        yield f"parks {numbers} again", source._replace(durable=after, process=began), shared

    @staticmethod
    def _parked_again(source: Source, shared: Shared) -> Iterator[Step]:
        """Note the tables that are recorded as parked again: the lock agent may have released them since."""
        process = source.process
        noted = process._replace(waiting=process.waiting + process.again, again=())
        yield "has parked again", source._replace(process=noted), shared

    def _adopts(self, source: Source, shared: Shared) -> Iterator[Step]:
        """Merge both streams when all lanes are at the same place (JoiningUnit)."""
        durable, process = source.durable, source.process
        main, join = process.main, process.join
        assert join is not None
        assert join.base is not None
        assert durable.join is not None
        if main.recorded is not None or join.recorded is not None:
            return
        if (main.lanes, join.lanes) != (durable.main, durable.join):
            return
        if not join.state.tables.is_whole_at(offset_of(min(join.lanes))):
            return
        here = tuple(map(_checkpoint, (*durable.main, *durable.join)))
        if not stream_state.is_one_place(here):
            return
        if not stream_state.is_after_statements(here, (durable.passed, durable.join_passed)):
            return
        own = main.state.tables.at_barrier(here[0].offset)
        joined = join.state.tables
        if durable.joining != stream_state.joining_after(join.base, joined):
            raise BrokenRuleError(f"what joins is recorded as {durable.joining}")
        both = own.with_joined(joined)
        state = state_of(both, self.name, own.tracks)
        after = durable._replace(dealing=both.partitioning, joining=None, join=None, join_passed=None)
        whole = process._replace(main=main._replace(state=state), join=None)
        yield f"adopts at {main.lanes[0]}", source._replace(durable=after, process=whole), shared


def first_shared() -> Shared:
    return Shared(None, (), (FIRST,), None)


def _stream_of(source: Source, *, is_own: bool) -> tuple[Stream, Lanes]:
    """Return a stream and its checkpoints."""
    if is_own:
        return source.process.main, source.durable.main
    assert source.process.join is not None
    assert source.durable.join is not None
    return source.process.join, source.durable.join


def _committed(source: Source, lane: int, at: int, *, is_own: bool) -> Source:
    _, before = _stream_of(source, is_own=is_own)
    after, durable = _at(before, lane, at), source.durable
    return source._replace(durable=durable._replace(main=after) if is_own else durable._replace(join=after))


def _moved(source: Source, lane: int, at: int, *, is_own: bool) -> Source:
    stream, _ = _stream_of(source, is_own=is_own)
    after, process = stream._replace(lanes=_at(stream.lanes, lane, at)), source.process
    return source._replace(process=process._replace(main=after) if is_own else process._replace(join=after))


def _at(lanes: Lanes, lane: int, at: int) -> Lanes:
    return (*lanes[:lane], at, *lanes[lane + 1 :])


def _without(calls: Calls, numbers: frozenset[int]) -> Calls:
    """Return the calls of a queue that has lost these tables."""
    found: list[Announces | Parks | Frees | Commits] = []
    for call in calls:
        match call:
            case Announces(places=places):
                places = tuple(each for each in places if each[0] not in numbers)
                found += (Announces(places),) if places else ()
            case Commits():
                found += (call,) if found else ()
            case _:
                items = tuple(item for item in call.items if item.number not in numbers)
                found += (replace(call, items=items),) if items else ()
    return tuple(found)


def _checkpoint(at: int) -> Checkpoint:
    return Checkpoint(0, 1, 0, "relay", offset_of(at), 0, place_of(at), 0.0)


def forget() -> None:
    """Forget the program's cached answers: a test is about to change them."""
    worker_state.forget()
    worker_reports.forget()


__all__ = ["KILLED", "Worker", "first_shared", "forget"]
