"""Makes what a run's phases need of its tables: plans, the hand-over of their chunks, late indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import AutoIncrement, TablePlan
from shardmerge.worker.daemon.subtask.run_resources import RunResources
from shardmerge.worker.rules import Rules
from shardmerge.worker.snapshot.chunk_store import read_handover
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.target.members.member_cache import MemberCache
from shardmerge.worker.target.members.merged_targets import MergedTargets
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.tables.deferred_index import Defer
from shardmerge.worker.target.tables.index_adder import IndexAdder
from shardmerge.worker.target.tables.make_targets import make_plans


def plans_of(
    resources: RunResources,
    rules: Rules,
    epoch: int,
    tables: tuple[Table, ...],
    source: Session,
    target: Session,
    shards: frozenset[int] | None,
    *,
    defer: Defer = Defer.NEVER,
    after_load: bool = False,
    widen: Callable[[TablePlan], None] | None = None,
    recorded: Mapping[int, CreateStatement] = MappingProxyType({}),
) -> tuple[TablePlan, ...]:
    """See :func:`shardmerge.worker.target.tables.make_targets.make_plans`; errors of the source become coded errors.

    ``defer``: whose indexes may be added after the load; ``after_load``: the tables' rows are loaded now. Without a
    load everything exists from the start.
    """
    with resources.coded_source_errors():
        return make_plans(
            rules,
            resources.source_id,
            tables,
            source,
            target,
            MergedTargets(resources.who, epoch, MemberCache(*resources.who[:2]), looks=True),
            resources.config.meta_schema,
            shards,
            defer=defer,
            after_load=after_load,
            widen=widen,
            recorded=recorded,
        )


def handover_of(
    resources: RunResources,
    plans: tuple[TablePlan, ...],
    stop: StopSignal,
    *,
    replicating: bool,
    interrupted: Mapping[int, StatementPlace],
) -> Handover | None:
    """The hand-over of the chunks in offsets of the current relay log; None when there was no snapshot.
    ``interrupted``: see :func:`shardmerge.worker.snapshot.chunk_store.read_handover`."""
    with resources.at_target() as target:
        return read_handover(
            target,
            resources.who,
            plans,
            resources.host.relay,
            resources.source_endpoint,
            stop,
            replicating=replicating,
            interrupted=interrupted,
        )


def adder_of(resources: RunResources, plans: tuple[TablePlan, ...], *, grows: bool = False) -> IndexAdder:
    """Adds the secondary indexes that the target tables still lack after their load. ``grows``: see
    :class:`IndexAdder`."""
    config = resources.config
    patient = config.load.defer_indexes or any(plan.auto_increment is AutoIncrement.AFTER_MAX for plan in plans)
    targets = {plan.target for plan in plans}
    adder = IndexAdder(
        resources.target_endpoint, config.meta_schema, config.task, targets, patient=patient, grows=grows
    )
    resources.owner.background_activity(adder.activity)
    return adder
