"""Tables that get columns at later places of a stream, as they are recorded. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.barrier_state import GrowingTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.partitioning import Growing


def plan_before(rules: Rules, plan: TablePlan, columns: Collection[str]) -> TablePlan:
    """The plan of the shard table of ``plan`` without ``columns``, which a later statement adds."""
    made = rules.plan(plan.shard, plan.source, plan.table.without_columns(columns))
    return replace(made, one_lane=plan.one_lane, may_lack_rows=plan.may_lack_rows)


def growing_tables(
    recorded: Iterable[Growing],
    plans: Mapping[int, TablePlan],
    found: Collection[Checkpoint],
    locate: Callable[[SourcePosition], RelayOffset],
) -> dict[int, GrowingTable]:
    """The tables of ``plans``, which have the recorded structures, that lanes with the checkpoints ``found`` may still
    meet without their new columns. ``locate``: the offset in the current relay log, of ascending positions."""
    return {
        item.number: GrowingTable(plans[item.number], locate(item.at), item)
        for item in sorted(recorded, key=lambda item: item.at.file_order())
        if item.number in plans and not item.is_passed(found)
    }


def plans_before(
    rules: Rules, plans: Iterable[TablePlan], growing: Mapping[int, GrowingTable]
) -> tuple[TablePlan, ...]:
    """``plans`` as they are before the statements at which tables grow."""
    return tuple(
        plan_before(rules, plan, growing[plan.shard].record.columns) if plan.shard in growing else plan
        for plan in plans
    )
