"""Runs phase SNAPSHOT: copies the tables and enters the next phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace

from shardmerge.proto import config_pb2, failpoints
from shardmerge.worker.core.cascades import CascadeKeys
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.daemon.subtask.phases.begin import LOCATE_SECONDS
from shardmerge.worker.daemon.subtask.phases.cascades import check_setting, first_cascades
from shardmerge.worker.daemon.subtask.phases.finish import finish_full
from shardmerge.worker.daemon.subtask.phases.run_tables import handover_of, plans_of
from shardmerge.worker.daemon.subtask.run_resources import RunResources
from shardmerge.worker.ddl.execute.widen_target import TargetWidener
from shardmerge.worker.replicate.bounds.stream_start import stream_start
from shardmerge.worker.replicate.unit import first_checkpoints
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.cascades import marked_cascaded
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.snapshot.unit import SnapshotUnit, interrupted_copies_of
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import ddl_progress as ddl_records
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.records.history.interrupted_copies import InterruptedCopy
from shardmerge.worker.target.records.partitioning import Partitioning, partitioning_for
from shardmerge.worker.target.records.subtask_record import Phase, SubTaskRow
from shardmerge.worker.target.tables.deferred_index import Defer
from shardmerge.worker.unit.contract import Finished, Outcome, Stopped


def copy(resources: RunResources, rules: Rules, epoch: int, row: SubTaskRow, stop: StopSignal) -> Outcome | None:
    """Run the snapshot, under the rules with which it began. None: the next phase is entered."""
    config, relay = resources.config, resources.host.relay
    assert row.start is not None  # noqa: S101 - for the type checker: written with the phase
    with ExitStack() as sessions:
        target, source = resources.target(sessions), resources.source(sessions)
        with resources.coded_target_errors():
            tables = subtask_record.read_tables(target, resources.who)
            # A target that is missing gets the structure with which the rows are copied: the source may have another.
            creations = ddl_records.read_creations(target, resources.who)
        partitioning = Partitioning.from_json(row.partitioning)
        if partitioning is not None:
            rules = partitioning.compiled_rules()
        shards = partitioning.shards if partitioning is not None else None
        widen = _widening(resources, target, creations, epoch, stop)
        defer = Defer.of(config.load)
        plans = plans_of(
            resources,
            rules,
            epoch,
            tables,
            source,
            target,
            shards,
            defer=defer,
            after_load=True,
            widen=widen,
            recorded=creations,
        )
        if partitioning is not None:
            check_setting(resources, partitioning)
            cascades = CascadeKeys(partitioning.cascades)
        else:
            cascades = first_cascades(resources, plans, creations)
        plans = marked_cascaded(plans, cascades)
        if partitioning is None:
            # Before the first chunk: its rows are at the target under these rules, even if the task file changes later.
            partitioning = replace(partitioning_for(config, resources.lanes, plans), cascades=cascades.keys)
            with resources.coded_target_errors():
                subtask_record.record_repartition(
                    target, resources.who, epoch, partitioning.to_json(), lambda session: None
                )
    # Before any offset is located in the relay log: at a worker that is new to the source it has not begun.
    relay.ensure_from(row.start)
    valid_from = dict.fromkeys((plan.shard for plan in plans), row.start)
    unit = SnapshotUnit(resources.context(rules, epoch, tables), plans, valid_from, cascades=cascades)
    outcome = resources.run_unit(unit, stop)
    if not isinstance(outcome, Finished):
        return outcome
    interrupted = interrupted_copies_of(unit.interrupted, plans)
    if config.mode == config_pb2.TASK_MODE_FULL and not interrupted:
        return finish_full(resources, epoch, plans, stop)
    places = {number: item.place for number, item in interrupted.items()}
    with relay.one_generation() as relay_id:
        handover = handover_of(resources, plans, stop, replicating=False, interrupted=places)
        offset = begin = relay.locate(row.start, LOCATE_SECONDS, stop)
        if handover is not None:
            offset = stream_start(relay, TableScope(rules), begin, handover)
    failpoints.hit("handover")
    first = first_checkpoints(partitioning.lanes, epoch, relay_id, relay.position_at(offset), offset)
    _enter_replicate(resources, epoch, first, interrupted)
    return Stopped() if stop.is_set else None


def _widening(
    resources: RunResources,
    target: Session,
    creations: Mapping[int, CreateStatement],
    epoch: int,
    stop: StopSignal,
) -> Callable[[TablePlan], None] | None:
    """In optimistic mode: extends a target table by the columns of a shard table that is merged into it."""
    if resources.config.shard_mode != config_pb2.SHARD_MODE_OPTIMISTIC:
        return None
    widener = TargetWidener(target, resources.who, epoch, stop)

    def widen(plan: TablePlan) -> None:
        if plan.shard in creations and plan.transform is None:
            with resources.coded_target_errors():
                widener.widen(plan, creations[plan.shard])

    return widen


def _enter_replicate(
    resources: RunResources, epoch: int, first: tuple[Checkpoint, ...], interrupted: Mapping[int, InterruptedCopy]
) -> None:
    """Checkpoints, interrupted copies and the phase change in one transaction."""

    def also(session: Session) -> None:
        checkpoints.insert(session, resources.who, first)
        interrupted_copies.write(session, resources.who, interrupted)

    with resources.at_target() as target:
        subtask_record.enter_phase(target, resources.who, epoch, Phase.REPLICATE, also)
