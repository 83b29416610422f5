"""What a run's phases make of its tables: plans, places of their chunks, late indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from worker.connection import Session
from worker.ddl.creation import Creation
from worker.deferred.adder import IndexAdder
from worker.plan import TablePlan
from worker.plans import make_plans
from worker.rules import Rules
from worker.run.means import Means
from worker.snapshot.handover import Handover
from worker.snapshot.store import read_handover
from worker.table import Table
from worker.unit import StopSignal


def plans_of(
    means: Means,
    rules: Rules,
    tables: tuple[Table, ...],
    source: Session,
    target: Session,
    shards: frozenset[int] | None,
    *,
    defer: bool = False,
    widen: Callable[[TablePlan], None] | None = None,
    recorded: Mapping[int, Creation] = MappingProxyType({}),
) -> tuple[TablePlan, ...]:
    """See :func:`worker.plans.make_plans`; what the source answers amiss leaves as coded errors.

    ``defer``: the tables' rows are loaded now; those of a stream alone have their indexes from the start.
    """
    with means.coding_source():
        return make_plans(
            rules,
            means.source_id,
            tables,
            source,
            target,
            means.config.meta_schema,
            shards,
            defer=defer,
            widen=widen,
            recorded=recorded,
        )


def handover_of(means: Means, plans: tuple[TablePlan, ...], stop: StopSignal, *, replicating: bool) -> Handover | None:
    """The chunks' high watermarks as offsets of the relay at hand; None when there was no snapshot."""
    with means.at_target() as target:
        return read_handover(
            target,
            *means.who,
            plans,
            means.host.relay,
            means.source_endpoint,
            stop,
            replicating=replicating,
        )


def adder_of(means: Means, plans: tuple[TablePlan, ...]) -> IndexAdder:
    """Of the secondary indexes that the target tables still lack after their load."""
    config = means.config
    adder = IndexAdder(means.target_endpoint, config.meta_schema, config.task, plans, patient=config.load.defer_indexes)
    means.owner.works_beside(adder.doing)
    return adder
