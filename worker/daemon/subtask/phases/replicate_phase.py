"""Runs phase REPLICATE: the stream, and tables that join it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from shardmerge.proto import config_pb2, errors
from shardmerge.worker.core.cascades import CascadeKeys
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.daemon.subtask.phases.begin import LOCATE_SECONDS
from shardmerge.worker.daemon.subtask.phases.cascades import check_setting, check_together, first_cascades
from shardmerge.worker.daemon.subtask.phases.finish import finish_at_stop, finish_full, read_safe_mode_bound
from shardmerge.worker.daemon.subtask.phases.run_tables import adder_of, handover_of, plans_of
from shardmerge.worker.daemon.subtask.run_resources import RunResources
from shardmerge.worker.ddl.decide.recorded_tracks import later_structures, plans_before
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Elsewhere, LaterStructure, Leaving, PartialCopy, own_tracks
from shardmerge.worker.ddl.driver import SharedByStreams, StatementDriver
from shardmerge.worker.ddl.locks.lock_agent import LockAgent
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
from shardmerge.worker.ddl.park_again import ParkAgain
from shardmerge.worker.ddl.structure.recorded_structures import record_reset_structures
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.position_order import lowest_position
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.serve.locate import GroupEnds
from shardmerge.worker.replicate.alignment import StreamAlignment, StreamRole
from shardmerge.worker.replicate.bounds.stop_point import StopSearch
from shardmerge.worker.replicate.join.released_tables import ReleasedTables
from shardmerge.worker.replicate.join.rest_of_copy import RestOfCopy
from shardmerge.worker.replicate.join.stream_state import excluded_tables, known_away_names, own_shards
from shardmerge.worker.replicate.join.subtask_end import SubtaskEnd
from shardmerge.worker.replicate.join.table_changes import check_transform_filters
from shardmerge.worker.replicate.join.table_join import SharedByJoins, TableJoin, locate_copies
from shardmerge.worker.replicate.join.task_update import Coming, TaskUpdate
from shardmerge.worker.replicate.join.unit import JoiningUnit
from shardmerge.worker.replicate.unit import ReplicateUnit, StartState, translate_checkpoints
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import ddl_progress as ddl_records
from shardmerge.worker.target.records import parked_tables, subtask_record
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.records.history.interrupted_copies import InterruptedCopy
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import AwayName, Partitioning, partitioning_for
from shardmerge.worker.target.records.subtask_record import SubTaskRow
from shardmerge.worker.target.tables.make_targets import plans_for
from shardmerge.worker.unit.contract import Finished, Outcome, Stopped
from shardmerge.worker.unit.run_context import RunContext


def replicate(
    resources: RunResources, rules: Rules, epoch: int, row: SubTaskRow, stop_search: StopSearch, stop: StopSignal
) -> Outcome | None:
    """Replicate until the stop, a failure, or until every lane is at the configured end. With task-mode full that is as
    soon as all tables are complete: statements have interrupted the copies of some. None: tables of an earlier update
    have joined, and it has to begin again with the one that waited for them."""
    state = _RecordedState.read(resources, rules, epoch, row)
    resources.host.relay.ensure_from(state.lowest())
    state.check_read(resources.host.relay)
    places = _Places.locate(resources, state, stop_search, stop)
    if places is None:
        return Stopped()
    full = resources.config.mode == config_pb2.TASK_MODE_FULL
    queue = ParkedQueue(resources.host.shards.wake) if places.has_joins else None
    shared = SharedByStreams(resources.owner.binlog_ops, queue, state.has_locks(resources.config))
    context = resources.context(rules, epoch, state.tables)
    main = _MainStream.begin(resources, state, places, context, shared, stop_search)
    if queue is not None:
        outcome = _run_with_joins(resources, state, places, main, queue, stop)
    else:
        with adder_of(resources, state.plans).running(stop):
            outcome = resources.run_unit(main.lanes, stop)
    if not isinstance(outcome, Finished):
        return outcome
    if state.coming.update_waits:
        return None
    if full:
        return finish_full(resources, epoch, main.driver.tables.plans_in_order, stop)
    return finish_at_stop(resources, epoch, stop_search)


@dataclass(frozen=True, slots=True)
class _Places:
    """The records' places in one generation of the relay log. ``leaving``: the parked tables whose rows the lanes still
    apply; ``resume_at``: where the rows of all parked tables continue; ``copies``: the lanes' tables that are copied in
    part; ``later``: the structures of tables of which the lanes may still meet rows without columns that a statement
    has added; all by number. ``has_joins``: other tables may have to join the lanes. ``end``: of both streams then."""

    relay_id: str
    handover: Handover | None
    leaving: Mapping[int, Leaving]
    resume_at: Mapping[int, RelayOffset]
    copies: Mapping[int, PartialCopy]
    later: Mapping[int, LaterStructure]
    has_joins: bool
    end: SubtaskEnd | None

    @staticmethod
    def locate(
        resources: RunResources, state: _RecordedState, stop_search: StopSearch, stop: StopSignal
    ) -> _Places | None:
        """None: ``stop`` came first. Raises TRANSFORM_FILTER_CHANGED, STOP_BEHIND and coded errors."""
        relay, partitioning, parked = resources.host.relay, state.partitioning, state.parked
        # The watermarks of every table of which the lanes may still see rows, under the rules of the old partitioning.
        marked = state.plans
        if partitioning is not None:
            marked = partitioning.plans(resources.source_id, state.tables)
        leaving = state.leaving_plans(resources)
        check_transform_filters(marked, state.plans)
        interrupted = {number: copy.place for number, copy in state.interrupted.items()}
        own = {plan.shard for plan in state.plans}
        with relay.one_generation() as relay_id:
            handover = handover_of(resources, (*marked, *leaving), stop, replicating=True, interrupted=interrupted)
            if stop.is_set:
                return None
            resume_at = _resume_offsets(relay, parked, stop)
            copies = {number: copy for number, copy in state.interrupted.items() if number in own}
            full = resources.config.mode == config_pb2.TASK_MODE_FULL
            has_joins = full or state.has_locks(resources.config) or bool(parked or copies or state.joining)
            return _Places(
                relay_id,
                handover,
                {plan.shard: Leaving(plan, resume_at[plan.shard], parked[plan.shard].place) for plan in leaving},
                resume_at,
                locate_copies(relay, copies, stop),
                state.later_structures(relay, stop),
                has_joins,
                _end_of(stop_search, state.checkpoints, handover, stop) if has_joins else None,
            )


@dataclass(frozen=True, slots=True)
class _MainStream:
    """The subtask's own lanes. ``alignment``: for the streams of tables that join them."""

    context: RunContext
    shared: SharedByStreams
    driver: StatementDriver
    lanes: ReplicateUnit
    alignment: StreamAlignment

    @staticmethod
    def begin(
        resources: RunResources,
        state: _RecordedState,
        places: _Places,
        context: RunContext,
        shared: SharedByStreams,
        stop_search: StopSearch,
    ) -> _MainStream:
        host, rules, handover = resources.host, context.rules, places.handover
        wanted = partitioning_for(resources.config, resources.lanes, state.plans).inherit(state.partitioning)
        wanted = replace(wanted, away=state.named, cascades=state.cascades.keys)
        own = own_tracks(plans_before(rules, state.plans, places.later), places.later, places.copies)
        tracks = {**own, **state.elsewhere(), **places.leaving}
        tables = StreamTables(state.tables, tracks, wanted, TableScope(rules, frozenset(state.others)))
        copied_until = handover.copied_until() if handover is not None else {}
        driver = StatementDriver(
            context, Stream.MAIN, tables, shared, copied_until=copied_until, relay_id=places.relay_id
        )
        limit = None if places.end is None else places.end.limit
        bound = read_safe_mode_bound(resources)
        start_state = StartState(state.checkpoints, state.partitioning, bound, stop_search, limit)
        alignment = StreamAlignment(lambda: host.relay.head().offset, host.relay.wake)
        role = StreamRole(Stream.MAIN, alignment)
        lanes = ReplicateUnit(context, host.service, handover, host.clock, start_state, driver, role)
        return _MainStream(context, shared, driver, lanes, alignment)

    def has_executed(self, statement: Statement) -> bool:
        """Whether the stream is past the statement."""
        lowest = self.lanes.lowest()
        return self.driver.has_executed(statement) or (lowest is not None and lowest >= statement.group_end)


def _run_with_joins(
    resources: RunResources,
    state: _RecordedState,
    places: _Places,
    main: _MainStream,
    queue: ParkedQueue,
    stop: StopSignal,
) -> Outcome:
    """Run the lanes, and in parallel what brings other tables to them. Raises UPDATE_OF_ENDING."""
    host, context, shared = resources.host, main.context, main.shared
    joining, end = state.joining, places.end
    queue.announce({number: track.offset for number, track in places.leaving.items()})
    queue.park(state.parked, places.resume_at)
    queue.copied(state.copied())
    if joining is not None and not joining.replays and end is not None:
        raise errors.replicate.UPDATE_OF_ENDING(task=resources.config.task, source=resources.source_id, stop=end.shown)
    others = plans_for(context.rules, resources.source_id, state.tables, frozenset(state.parked))
    added = joining.partitioning.plans(resources.source_id, state.tables) if joining is not None else ()
    adder = adder_of(resources, (*state.plans, *added, *others), grows=joining is not None)
    of_joins = replace(shared, main_has_executed=main.has_executed)
    by_joins = SharedByJoins(host.service, host.clock, main.alignment, of_joins, end)
    join = None
    if joining is not None:
        own = resources.context(joining.partitioning.compiled_rules(), context.epoch, state.tables)
        own = replace(own, copy_turn=context.copy_turn, numbers=context.numbers)
        join = TableJoin(own, joining, by_joins, adder.watch)
    with ExitStack() as background:
        background.enter_context(adder.running(stop))
        rest = RestOfCopy(context, queue, end)
        background.enter_context(rest.running(stop))
        agent = None
        if shared.locks:
            agent = LockAgent(context, host.shards, queue, shared.ops, main.lanes.lowest)
            background.enter_context(agent.running(stop))
        again = ParkAgain(context, shared.ops, queue, places.relay_id)
        table_source = ReleasedTables(context, by_joins, queue, agent, rest, again)
        full = resources.config.mode == config_pb2.TASK_MODE_FULL
        unit = JoiningUnit(
            context,
            main.lanes,
            main.driver,
            main.alignment,
            join,
            table_source,
            ends_when_whole=full,
            ends_when_joined=state.coming.update_waits,
            end=end,
        )
        return resources.run_unit(unit, stop)


@dataclass(frozen=True, slots=True)
class _RecordedState:
    """The subtask's recorded state at the target, and the plans that this run makes of its tables.

    ``partitioning``: of the previous run's lanes, None at the first run. ``coming``: the tables that join them.
    ``parked``: the tables that are parked at a statement. ``interrupted``: those that are copied in part. ``plans``: of
    the lanes' own tables; ``others``: the tables that the lanes do not apply, with their numbers. ``named``: those of
    them whose names have changed. ``cascades``: the foreign keys whose effect on rows the lanes derive.
    """

    checkpoints: tuple[Checkpoint, ...]
    partitioning: Partitioning | None
    tables: tuple[Table, ...]
    coming: Coming
    parked: Mapping[int, Parked]
    interrupted: Mapping[int, InterruptedCopy]
    others: Mapping[TableName, int]
    named: tuple[AwayName, ...]
    plans: tuple[TablePlan, ...]
    cascades: CascadeKeys

    @property
    def joining(self) -> Joining | None:
        return self.coming.joining

    @staticmethod
    def read(resources: RunResources, rules: Rules, epoch: int, row: SubTaskRow) -> _RecordedState:
        config, partitioning = resources.config, Partitioning.from_json(row.partitioning)
        with ExitStack() as sessions:
            target, source = resources.target(sessions), resources.source(sessions)
            record_reset_structures(
                source, target, config, epoch, (resources.source_endpoint, resources.target_endpoint)
            )
            with resources.coded_target_errors():
                # No other process moves them: the epoch is this run's.
                found = checkpoints.read_begun(target, resources.who)
                tables = subtask_record.read_tables(target, resources.who)
                parked = parked_tables.read(target, resources.who)
                interrupted = interrupted_copies.read(target, resources.who)
            coming = Coming(None, tables)
            if partitioning is not None:
                update = _update(resources, rules, epoch)
                coming = update.coming(source, target, row, partitioning.with_tables(parked), tables)
                parked = update.still_parked(target, partitioning, coming.tables, parked)
            joining, tables = coming.joining, coming.tables
            with resources.coded_target_errors():
                # A missing target table must fit the next rows, whatever structure the source has by now.
                creations = ddl_records.read_creations(target, resources.who)
            if partitioning is not None:
                check_setting(resources, partitioning)
            named = known_away_names(partitioning, joining, parked)
            others = excluded_tables(tables, joining, parked, named)
            shards = own_shards(tables, partitioning, others) if partitioning is not None else None
            if partitioning is not None and shards is not None and _is_begun(resources, target):
                # The target may already have the structure after the statement: it is checked when that is done.
                plans = partitioning.plans_of(shards, rules, resources.source_id, tables)
            else:
                plans = plans_of(resources, rules, epoch, tables, source, target, shards, recorded=creations)
                plans = partitioning.apply_may_lack_rows(plans) if partitioning is not None else plans
                if partitioning is not None and config.shard_mode == config_pb2.SHARD_MODE_OPTIMISTIC:
                    plans = partitioning.keep_one_lane(plans)
            if partitioning is not None:
                cascades = CascadeKeys(partitioning.cascades)
                away = {*parked, *interrupted, *others.values()}
                check_together(resources, cascades, tables, away, joining.numbers if joining else (), creations)
            else:
                cascades = first_cascades(resources, plans, creations)
        return _RecordedState(found, partitioning, tables, coming, parked, interrupted, others, named, plans, cascades)

    def check_read(self, relay: Relay) -> None:
        """In another relay log than the one that the lanes have read, their positions must mean the same place. Raises
        SOURCE_LOG_RESET."""
        moved = [item for item in self.checkpoints if item.relay_id != relay.relay_id and item.position.file]
        if moved:
            last = max(moved, key=lambda item: item.position.file_order())
            relay.check_read(last.position, last.commit_time)

    def has_locks(self, config: config_pb2.SubTaskConfig) -> bool:
        """Whether the subtask takes part in sharding-DDL locks: by its configuration, or by tables that are parked."""
        is_parked = any(not item.resumes_copy for item in self.parked.values())
        return config.shard_mode != config_pb2.SHARD_MODE_NONE or is_parked

    def copied(self) -> dict[int, int]:
        """The parked tables whose rest is copied, as far as that was possible, with their interruptions."""
        return {
            number: item.resumes_copy
            for number, item in self.parked.items()
            if number not in self.interrupted or self.interrupted[number].number > item.resumes_copy
        }

    def leaving_plans(self, resources: RunResources) -> tuple[TablePlan, ...]:
        """The plans of the parked tables whose rows the lanes still apply, up to the places where they are parked."""
        if self.partitioning is None:
            return ()
        places = {number: item.place for number, item in self.parked.items() if not item.released}
        return self.partitioning.leaving_plans(resources.source_id, self.tables, places)

    def elsewhere(self) -> dict[int, Elsewhere]:
        """The tracks of the tables that the lanes do not apply."""
        found = {number: Elsewhere(name) for name, number in self.others.items()}
        return found | {item.number: Elsewhere(item.name, item) for item in self.named}

    def later_structures(self, relay: Relay, stop: StopSignal) -> dict[int, LaterStructure]:
        """The structures of the tables of which the lanes may still meet rows without columns that a statement has
        added."""
        if self.partitioning is None:
            return {}
        ends = GroupEnds()
        return later_structures(
            self.partitioning.growing,
            {plan.shard: plan for plan in self.plans},
            self.checkpoints,
            lambda at: relay.locate(at, LOCATE_SECONDS, stop, ends=ends),
        )

    def lowest(self) -> SourcePosition:
        """The position back to which the relay log must reach: the lowest at which one of its streams continues."""
        starts = [self.joining.start] if self.joining is not None else []
        return _lowest([_lowest_of(self.checkpoints), *starts, *(item.resume_at for item in self.parked.values())])


def _resume_offsets(relay: Relay, parked: Mapping[int, Parked], stop: StopSignal) -> dict[int, RelayOffset]:
    """Where the rows of parked tables continue, by number, in the current relay log."""
    ends = GroupEnds()
    return {
        number: relay.locate(item.resume_at, LOCATE_SECONDS, stop, ends=ends)
        for number, item in sorted(parked.items(), key=lambda pair: pair[1].resume_at.file_order())
    }


def _end_of(
    stop_search: StopSearch, found: tuple[Checkpoint, ...], handover: Handover | None, stop: StopSignal
) -> SubtaskEnd | None:
    """The end of both streams; None: they have none. Raises STOP_BEHIND."""
    if stop_search.stop is None:
        return None
    at_least = handover.done_at if handover is not None else None
    limit = stop_search.stream_limit(translate_checkpoints(stop_search.relay, found, stop), at_least, stop)
    return SubtaskEnd(stop_search.task, stop_search.source, stop_search.stop.shown, limit)


def _is_begun(resources: RunResources, target: Session) -> bool:
    with resources.coded_target_errors():
        return ddl_records.has_begun_statement(target, resources.who)


def _update(resources: RunResources, rules: Rules, epoch: int) -> TaskUpdate:
    return TaskUpdate(
        resources.config,
        resources.update_token,
        epoch,
        rules,
        resources.lanes,
        resources.source_endpoint,
        resources.target_endpoint,
    )


def _lowest_of(found: tuple[Checkpoint, ...]) -> SourcePosition:
    """The position at which the stream must be able to continue."""
    if len({item.relay_id for item in found}) == 1:
        return min(found, key=lambda item: item.offset).position
    return lowest_position([item.position for item in found])


def _lowest(positions: list[SourcePosition]) -> SourcePosition:
    return positions[0] if len(positions) == 1 else lowest_position(positions)
