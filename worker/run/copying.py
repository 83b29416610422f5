"""A run in phase SNAPSHOT."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from proto import config_pb2, hooks
from worker import meta
from worker.connection import Session
from worker.ddl import records as ddl_records
from worker.ddl.widen import Widening
from worker.meta import Phase, SubTaskRow
from worker.plan import TablePlan
from worker.position import SourcePosition
from worker.replicate import checkpoint as checkpoints
from worker.replicate.dealing import Dealing, dealing_of
from worker.replicate.unit import first_checkpoints
from worker.rules import Rules
from worker.run.begin import checkpoints_at
from worker.run.end import ended, finish
from worker.run.means import Means
from worker.run.tables import adder_of, handover_of, plans_of
from worker.snapshot.handover import Handover
from worker.snapshot.unit import SnapshotUnit
from worker.unit import Finished, Outcome, Stopped, StopSignal


def copy(means: Means, rules: Rules, epoch: int, row: SubTaskRow, stop: StopSignal) -> Outcome | None:
    """The snapshot, by the rules under which it began. None: the next phase is entered."""
    config, relay = means.config, means.host.relay
    assert row.start is not None  # noqa: S101 - for the type checker: written with the phase
    with ExitStack() as sessions:
        target, source = means.target(sessions), means.source(sessions)
        with means.coding_target():
            tables = meta.read_tables(target, *means.who)
        dealing = Dealing.from_json(row.dealing)
        if dealing is not None:
            rules = dealing.compiled_rules()
        shards = dealing.shards if dealing is not None else None
        widen = _widening(means, target, epoch, stop)
        plans = plans_of(means, rules, tables, source, target, shards, defer=config.load.defer_indexes, widen=widen)
        if dealing is None:
            # Before the first chunk: rows are at the target by these rules, whatever the task file says later.
            dealing = dealing_of(config, means.lanes, plans)
            with means.coding_target():
                meta.deal_anew(target, *means.who, epoch, dealing.to_json(), lambda session: None)
    # Before any offset is asked of the relay: at a worker that is new to the source it has not begun.
    relay.ensure_from(row.start)
    outcome = means.run_unit(SnapshotUnit(means.context(rules, epoch, tables), plans), stop)
    if not isinstance(outcome, Finished):
        return outcome
    if config.mode == config_pb2.TASK_MODE_FULL:
        adder_of(means, plans).add(stop)
        if stop.is_set:
            return Stopped()
        finish(means, epoch)
        with ExitStack() as sessions:
            return ended(means, means.target(sessions), epoch) or Finished()
    with relay.one_generation() as relay_id:
        handover = handover_of(means, plans, stop, replicating=False)
    hooks.reach("handover")
    _enter_replicate(means, epoch, row.start, handover, relay_id, dealing.lanes, stop)
    return Stopped() if stop.is_set else None


def _widening(means: Means, target: Session, epoch: int, stop: StopSignal) -> Callable[[TablePlan], None] | None:
    """Under the optimistic mode: lets a target take the columns of a shard table that comes to it."""
    if means.config.shard_mode != config_pb2.SHARD_MODE_OPTIMISTIC:
        return None
    with means.coding_target():
        creations = ddl_records.read_creations(target, *means.who)
    widening = Widening(target, means.who, epoch, stop)

    def widen(plan: TablePlan) -> None:
        if plan.shard in creations and plan.transform is None:
            with means.coding_target():
                widening(plan, creations[plan.shard])

    return widen


def _enter_replicate(
    means: Means,
    epoch: int,
    start: SourcePosition,
    handover: Handover | None,
    relay_id: str,
    lanes: int,
    stop: StopSignal,
) -> None:
    """The stream starts at the lowest high watermark; checkpoints and phase change in one transaction."""
    if handover is None:
        first = checkpoints_at(means, epoch, start, lanes, stop)
    else:
        _, offset = handover.lowest
        first = first_checkpoints(lanes, epoch, relay_id, means.host.relay.position_at(offset), offset)
    with means.at_target() as target:
        meta.enter_phase(
            target,
            *means.who,
            epoch,
            Phase.REPLICATE,
            lambda session: checkpoints.insert(session, *means.who, first),
        )
