"""Computes which tables join, leave, move or are refused when rules change or tables are new at the source. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shardmerge.proto import errors
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules import Rules, check_partitions
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.partitioning import Partitioning


@dataclass(frozen=True, slots=True)
class Joins:
    """A table is added: its history is copied in parallel with the stream."""

    plan: TablePlan


@dataclass(frozen=True, slots=True)
class Leaves:
    """A table is removed: its later changes are not applied; its rows at the target stay."""

    plan: TablePlan


@dataclass(frozen=True, slots=True)
class Moves:
    """A table moves to another target: it leaves the one and joins the other, history first."""

    before: TablePlan
    after: TablePlan


@dataclass(frozen=True, slots=True)
class Remaps:
    """A table's rows would be written differently into the target that already holds them: refused."""

    before: TablePlan
    after: TablePlan


Change = Joins | Leaves | Moves | Remaps


def changes_of(
    source_id: str,
    tables: tuple[Table, ...],
    recorded: Partitioning,
    joining: Joining | None,
    wanted: Rules,
    found: Iterable[Table],
) -> tuple[Change, ...]:
    """The changes from the subtask's present tables to those that ``wanted`` lets through, by name.

    ``tables``: the recorded structures; ``recorded``: includes the parked tables; ``found``: the source's present
    tables that ``wanted`` lets through. New plans are numbered after the recorded tables. Raises the rules' errors,
    PARTITION_CLASH among them.
    """
    plans = [*recorded.plans(source_id, tables)]
    if joining is not None:
        plans += replace(joining.partitioning, shards=joining.numbers).plans(source_id, tables)
    before = {(plan.table.schema, plan.table.name): plan for plan in plans}
    changes: list[Change] = []
    after: list[TablePlan] = []
    number = len(tables)
    for table in sorted(found, key=lambda table: (table.schema, table.name)):
        old = before.get((table.schema, table.name))
        fresh = wanted.plan(number, source_id, table)
        if old is None:
            changes.append(Joins(fresh))
        else:
            now = wanted.plan(old.shard, source_id, old.table)
            if now.target_name != old.target_name:
                changes.append(Moves(old, fresh))
            else:
                if (now.columns, now.key, now.transform) != (old.columns, old.key, old.transform):
                    changes.append(Remaps(old, now))
                after.append(now)
                continue
        number += 1
        after.append(fresh)
    check_partitions(after)
    changes += [Leaves(plan) for name, plan in sorted(before.items()) if wanted.route(*name) is None]
    return tuple(changes)


def check_transform_filters(before: Iterable[TablePlan], after: Iterable[TablePlan]) -> None:
    """Check that a transform's row filter did not change, by table number. Raises TRANSFORM_FILTER_CHANGED: the targets
    hold the rows that the filter in ``before`` let through, and a row would wrongly be treated as present or absent."""
    was = {plan.shard: plan for plan in before}
    for now in after:
        old = was.get(now.shard, now)
        if _filter(old) != _filter(now):
            raise errors.replicate.TRANSFORM_FILTER_CHANGED(
                source=now.source,
                table=now.table.full_name,
                target=old.target_name,
                before=_filter(old) or "(none)",
                after=_filter(now) or "(none)",
            )


def _filter(plan: TablePlan) -> str:
    return plan.transform.filter if plan.transform is not None else ""


def tables_to_copy(source_id: str, changes: Iterable[Change]) -> tuple[TablePlan, ...]:
    """The tables to copy, by number. Raises UPDATE_REMAPS."""
    plans: list[TablePlan] = []
    for change in changes:
        match change:
            case Joins(plan=plan) | Moves(after=plan):
                plans.append(plan)
            case Remaps(before=before):
                raise errors.replicate.UPDATE_REMAPS(
                    source=source_id, table=before.table.full_name, target=before.target_name
                )
            case Leaves():
                pass
    return tuple(plans)
