"""A run in phase REPLICATE: the stream, and tables that join it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from proto import config_pb2, errors
from worker import meta
from worker.connection import Session
from worker.ddl import parked as parked_tables
from worker.ddl import records as ddl_records
from worker.ddl.agent import ShardAgent
from worker.ddl.driver import StatementDriver
from worker.ddl.parked import Parked
from worker.ddl.passing import TablesStanding, plans_by_number
from worker.ddl.recorded import read_forgotten
from worker.ddl.tables import TableName, TableScope
from worker.ddl.waiting import WaitingTables
from worker.join.change import check_views
from worker.join.join import TableJoin
from worker.join.record import Joining
from worker.join.released import ReleasedTables
from worker.join.standing import others_of, own_shards
from worker.join.unit import NOBODY, JoiningUnit
from worker.join.update import Update
from worker.meta import SubTaskRow
from worker.plan import TablePlan
from worker.position import SourcePosition
from worker.relay.order import lowest_position
from worker.replicate import checkpoint as checkpoints
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.dealing import Dealing, dealing_of
from worker.replicate.meeting import Meeting
from worker.replicate.stream import Stream
from worker.replicate.unit import Part, ReplicateUnit, Standing
from worker.rules import Rules
from worker.run.begin import LOCATE_SECONDS
from worker.run.end import reached, settled
from worker.run.means import Means
from worker.run.tables import adder_of, handover_of, plans_of
from worker.stop_at import Ending
from worker.table import Table
from worker.unit import Finished, Outcome, Stopped, StopSignal


def replicate(means: Means, rules: Rules, epoch: int, row: SubTaskRow, ending: Ending, stop: StopSignal) -> Outcome:
    """Until it is stopped, fails or every lane stands at the configured end."""
    host, told = means.host, means.owner.binlog_ops
    left = _Left.read(means, rules, epoch, row)
    dealing, plans, tables, joining, parked = left.dealing, left.plans, left.tables, left.joining, left.parked
    host.relay.ensure_from(left.lowest())
    # The chunks' marks of every table whose rows the lanes may still meet, by the rules they were dealt by.
    marked = dealing.plans(means.source_id, tables) if dealing is not None else plans
    check_views(marked, plans)
    with host.relay.one_generation():
        handover = handover_of(means, marked, stop, replicating=True)
    if stop.is_set:
        return Stopped()

    context = means.context(rules, epoch, tables)
    standing = Standing(left.checkpoints, dealing, settled(means), ending)
    wanted = dealing_of(means.config, means.lanes, plans).behind(dealing)
    begin = TablesStanding(tables, plans_by_number(plans), wanted, TableScope(rules, left.others))
    waiting = _waiting(means, parked, stop)
    driver = StatementDriver(context, Stream.MAIN, begin, waiting=waiting, ops=told)
    meeting = Meeting(lambda: host.relay.head().offset)
    part = Part(Stream.MAIN, meeting)
    lanes = ReplicateUnit(context, host.service, plans, handover, host.clock.position, standing, driver, part)
    if joining is None and waiting is None:
        with adder_of(means, plans).beside(stop):
            outcome = means.run_unit(lanes, stop)
        return reached(means, epoch, ending) if isinstance(outcome, Finished) else outcome
    if joining is not None and ending.stop is not None:
        raise errors.replicate.UPDATE_OF_ENDING(task=means.config.task, source=means.source_id, stop=ending.stop.shown)
    join, come = None, tuple[TablePlan, ...]()
    if joining is not None:
        own = means.context(joining.dealing.compiled_rules(), epoch, tables)
        join = TableJoin(own, host.service, host.clock.position, joining, meeting, waiting, told)
        come = joining.dealing.plans(means.source_id, tables)
    with ExitStack() as beside:
        beside.enter_context(adder_of(means, (*plans, *come)).beside(stop))
        coming = NOBODY
        if waiting is not None:
            agent = ShardAgent(context, host.shards, waiting)
            beside.enter_context(agent.beside(stop))
            coming = ReleasedTables(context, host.service, host.clock.position, meeting, waiting, agent, told)
        outcome = means.run_unit(JoiningUnit(context, lanes, driver, meeting, join, coming), stop)
    return reached(means, epoch, ending) if isinstance(outcome, Finished) else outcome


@dataclass(frozen=True, slots=True)
class _Left:
    """What the run before has left at the target, and what this one makes of the tables.

    ``dealing``: by which the lanes dealt, None at the first run. ``joining``: the tables that come in beside them.
    ``parked``: those that wait before a statement. ``plans``: of the lanes' own tables; ``others``: whose they are not.
    """

    checkpoints: tuple[Checkpoint, ...]
    dealing: Dealing | None
    tables: tuple[Table, ...]
    joining: Joining | None
    parked: Mapping[int, Parked]
    others: frozenset[TableName]
    plans: tuple[TablePlan, ...]

    @staticmethod
    def read(means: Means, rules: Rules, epoch: int, row: SubTaskRow) -> _Left:
        config, dealing = means.config, Dealing.from_json(row.dealing)
        with ExitStack() as sessions:
            target, source = means.target(sessions), means.source(sessions)
            read_forgotten(source, target, config, epoch, (means.source_endpoint, means.target_endpoint))
            with means.coding_target():
                # Nobody else moves them: the epoch is ours.
                found = checkpoints.read_begun(target, *means.who)
                tables = meta.read_tables(target, *means.who)
                parked = parked_tables.read(target, *means.who)
            joining = None
            if dealing is not None:
                update = _update(means, rules, epoch)
                joining, tables = update.joining(source, target, row, dealing.with_tables(parked), tables)
                parked = update.still_waiting(target, dealing, tables, parked)
            with means.coding_target():
                # A target that is missing is to fit the rows to come, whatever the source has by now.
                creations = ddl_records.read_creations(target, *means.who)
            others = others_of(tables, joining, parked)
            shards = own_shards(tables, dealing, others) if dealing is not None else None
            if dealing is not None and shards is not None and _is_begun(means, target):
                # The target may be as it is behind the statement already: it is looked at there.
                plans = dealing.plans_of(shards, rules, means.source_id, tables)
            else:
                plans = plans_of(means, rules, tables, source, target, shards, recorded=creations)
                plans = dealing.still_loose(plans) if dealing is not None else plans
        return _Left(found, dealing, tables, joining, parked, others, plans)

    def lowest(self) -> SourcePosition:
        """How far back the relay must reach: to where any of its streams begins again."""
        starts = [self.joining.start] if self.joining is not None else []
        return _lowest([_lowest_of(self.checkpoints), *starts, *(item.behind for item in self.parked.values())])


def _waiting(means: Means, parked: Mapping[int, Parked], stop: StopSignal) -> WaitingTables | None:
    """The shard tables that wait before sharding DDLs; None without a shard-mode, once none waits any more."""
    if means.config.shard_mode == config_pb2.SHARD_MODE_NONE and not parked:
        return None
    waiting = WaitingTables()
    for number, item in parked.items():
        waiting.park({number: item}, means.host.relay.locate(item.behind, LOCATE_SECONDS, stop))
    return waiting


def _is_begun(means: Means, target: Session) -> bool:
    with means.coding_target():
        return ddl_records.is_begun(target, *means.who)


def _update(means: Means, rules: Rules, epoch: int) -> Update:
    return Update(
        means.config,
        means.update_token,
        epoch,
        rules,
        means.lanes,
        means.source_endpoint,
        means.target_endpoint,
    )


def _lowest_of(found: tuple[Checkpoint, ...]) -> SourcePosition:
    """Where the stream must be able to begin again."""
    if len({item.relay_id for item in found}) == 1:
        return min(found, key=lambda item: item.offset).position
    return lowest_position([item.position for item in found])


def _lowest(positions: list[SourcePosition]) -> SourcePosition:
    return positions[0] if len(positions) == 1 else lowest_position(positions)
