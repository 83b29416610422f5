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
from shardmerge.worker.ddl.decide.barrier_state import StreamTables, own_tracks
from shardmerge.worker.ddl.decide.track import Elsewhere, LaterStructure, Leaving, later_structures, plans_before
from shardmerge.worker.ddl.driver import StatementDriver
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
from shardmerge.worker.replicate.join.table_join import TableJoin, locate_copies
from shardmerge.worker.replicate.join.task_update import TaskUpdate
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


def replicate(
    resources: RunResources, rules: Rules, epoch: int, row: SubTaskRow, stop_search: StopSearch, stop: StopSignal
) -> Outcome:
    """Replicate until the stop, a failure, or until every lane is at the configured end. With task-mode full that is as
    soon as all tables are complete: statements have interrupted the copies of some."""
    full = resources.config.mode == config_pb2.TASK_MODE_FULL
    host, ops = resources.host, resources.owner.binlog_ops
    state = _RecordedState.read(resources, rules, epoch, row)
    partitioning, plans, tables = state.partitioning, state.plans, state.tables
    joining, parked = state.joining, state.parked
    host.relay.ensure_from(state.lowest())
    # The watermarks of every table of which the lanes may still see rows, under the rules of the old partitioning.
    marked = partitioning.plans(resources.source_id, tables) if partitioning is not None else plans
    leaving_plans = state.leaving_plans(resources)
    check_transform_filters(marked, plans)
    places = {number: copy.place for number, copy in state.interrupted.items()}
    own = {plan.shard for plan in plans}
    with host.relay.one_generation() as relay_id:
        handover = handover_of(resources, (*marked, *leaving_plans), stop, replicating=True, interrupted=places)
        if stop.is_set:
            return Stopped()
        resume_at = _resume_offsets(host.relay, parked, stop)
        copies = {number: copy for number, copy in state.interrupted.items() if number in own}
        partial_copies = locate_copies(host.relay, copies, stop)
        later = state.later_structures(host.relay, stop)
        locks = resources.config.shard_mode != config_pb2.SHARD_MODE_NONE or any(
            not item.resumes_copy for item in parked.values()
        )
        queue, end = None, None
        if full or locks or parked or partial_copies or joining is not None:
            queue = ParkedQueue()
            end = _end_of(stop_search, state.checkpoints, handover, stop)

    context = resources.context(rules, epoch, tables)
    limit = end.limit if end is not None else None
    start_state = StartState(state.checkpoints, partitioning, read_safe_mode_bound(resources), stop_search, limit)
    wanted = partitioning_for(resources.config, resources.lanes, plans).inherit(partitioning)
    wanted = replace(wanted, away=state.named, cascades=state.cascades.keys)
    leaving = {at.shard: Leaving(at, resume_at[at.shard], parked[at.shard].place) for at in leaving_plans}
    tracks = own_tracks(plans_before(rules, plans, later), later, partial_copies) | state.elsewhere() | leaving
    begin = StreamTables(tables, tracks, wanted, TableScope(rules, frozenset(state.others)))
    if queue is not None:
        queue.announce({number: track.offset for number, track in leaving.items()})
        queue.park(parked, resume_at)
        queue.copied(state.copied())
    copied_until = handover.copied_until() if handover is not None else {}
    driver = StatementDriver(
        context,
        Stream.MAIN,
        begin,
        parked_queue=queue,
        ops=ops,
        copied_until=copied_until,
        locks=locks,
        relay_id=relay_id,
    )
    alignment = StreamAlignment(lambda: host.relay.head().offset, host.relay.wake)
    role = StreamRole(Stream.MAIN, alignment)
    lanes = ReplicateUnit(
        context,
        host.service,
        begin.plans_in_order,
        handover,
        host.clock.position,
        start_state,
        driver,
        role,
        host.clock.unknown,
        host.clock.age,
    )
    if queue is not None:
        queue.is_executed_by_main = lambda statement: driver.has_executed(statement) or _is_past(lanes, statement)
    if queue is None:
        with adder_of(resources, plans).running(stop):
            outcome = resources.run_unit(lanes, stop)
        return finish_at_stop(resources, epoch, stop_search) if isinstance(outcome, Finished) else outcome
    if joining is not None and not joining.replays and stop_search.stop is not None:
        raise errors.replicate.UPDATE_OF_ENDING(
            task=resources.config.task, source=resources.source_id, stop=stop_search.stop.shown
        )
    away = plans_for(rules, resources.source_id, tables, frozenset(parked))
    join, added = None, tuple[TablePlan, ...]()
    if joining is not None:
        added = joining.partitioning.plans(resources.source_id, tables)
    adder = adder_of(resources, (*plans, *added, *away), grows=joining is not None)
    if joining is not None:
        own_context = resources.context(joining.partitioning.compiled_rules(), epoch, tables)
        own_context = replace(own_context, copy_turn=context.copy_turn, numbers=context.numbers)
        join = TableJoin(
            own_context,
            host.service,
            host.clock.position,
            joining,
            alignment,
            queue,
            ops,
            locks=locks,
            end=end,
            watch_indexes=adder.watch,
        )
    with ExitStack() as background:
        background.enter_context(adder.running(stop))
        rest = RestOfCopy(context, queue, end)
        background.enter_context(rest.running(stop))
        agent = LockAgent(context, host.shards, queue, ops, lanes.lowest) if locks else None
        if agent is not None:
            background.enter_context(agent.running(stop))
        again = ParkAgain(context, ops, queue, relay_id)
        table_source = ReleasedTables(
            context, host.service, host.clock.position, alignment, queue, agent, rest, ops, end, again
        )
        unit = JoiningUnit(context, lanes, driver, alignment, join, table_source, ends_when_whole=full, end=end)
        outcome = resources.run_unit(unit, stop)
    if full and isinstance(outcome, Finished):
        return finish_full(resources, epoch, driver.tables.plans_in_order, stop)
    return finish_at_stop(resources, epoch, stop_search) if isinstance(outcome, Finished) else outcome


@dataclass(frozen=True, slots=True)
class _RecordedState:
    """The subtask's recorded state at the target, and the plans that this run makes of its tables.

    ``partitioning``: of the previous run's lanes, None at the first run. ``joining``: the tables that join them.
    ``parked``: the tables that are parked at a statement. ``interrupted``: those that are copied in part. ``plans``: of
    the lanes' own tables; ``others``: the tables that the lanes do not apply, with their numbers. ``named``: those of
    them whose names have changed. ``cascades``: the foreign keys whose effect on rows the lanes derive.
    """

    checkpoints: tuple[Checkpoint, ...]
    partitioning: Partitioning | None
    tables: tuple[Table, ...]
    joining: Joining | None
    parked: Mapping[int, Parked]
    interrupted: Mapping[int, InterruptedCopy]
    others: Mapping[TableName, int]
    named: tuple[AwayName, ...]
    plans: tuple[TablePlan, ...]
    cascades: CascadeKeys

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
            joining = None
            if partitioning is not None:
                update = _update(resources, rules, epoch)
                joining, tables = update.joining(source, target, row, partitioning.with_tables(parked), tables)
                parked = update.still_parked(target, partitioning, tables, parked)
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
        return _RecordedState(found, partitioning, tables, joining, parked, interrupted, others, named, plans, cascades)

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


def _is_past(lanes: ReplicateUnit, statement: Statement) -> bool:
    lowest = lanes.lowest()
    return lowest is not None and lowest >= statement.group_end


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
