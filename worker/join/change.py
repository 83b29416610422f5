"""What other rules, or tables that are new at the source, change for a subtask's tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from proto import errors
from worker.join.record import Joining
from worker.plan import TablePlan
from worker.replicate.dealing import Dealing
from worker.rules import Rules, check_partitions
from worker.table import Table


@dataclass(frozen=True, slots=True)
class Joins:
    """A table comes in: its history is copied beside the stream."""

    plan: TablePlan


@dataclass(frozen=True, slots=True)
class Leaves:
    """A table goes: its later changes are not applied; its rows at the target stay."""

    plan: TablePlan


@dataclass(frozen=True, slots=True)
class Moves:
    """A table goes to another target: it leaves the one and joins the other, history first."""

    before: TablePlan
    after: TablePlan


@dataclass(frozen=True, slots=True)
class Remaps:
    """A table's rows would be written otherwise into the target that holds them already: refused."""

    before: TablePlan
    after: TablePlan


Change = Joins | Leaves | Moves | Remaps


def changes_of(
    source_id: str,
    tables: tuple[Table, ...],
    recorded: Dealing,
    joining: Joining | None,
    wanted: Rules,
    found: Iterable[Table],
) -> tuple[Change, ...]:
    """What leads from the tables that take part to those that ``wanted`` lets through; by name.

    ``tables``: the recorded structures; ``recorded``: with the tables that wait before sharding DDLs; ``found``: those
    at the source now that ``wanted`` lets through. A new plan's number is the one after the recorded tables'. Raises
    the rules' errors, PARTITION_CLASH among them.
    """
    plans = [*recorded.plans(source_id, tables)]
    if joining is not None:
        plans += replace(joining.dealing, shards=joining.numbers).plans(source_id, tables)
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


def check_views(before: Iterable[TablePlan], after: Iterable[TablePlan]) -> None:
    """Whether the targets hold those rows that the plans ``after`` let through, of tables whose rows ``before`` did. By
    number. Raises TRANSFORM_FILTER_CHANGED: a row that was left out, or in, would be taken for the opposite."""
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


def stays(table: Table, before: Rules, wanted: Rules) -> bool:
    """Whether the rows of a table that takes part under ``before`` go where they went."""
    was, now = before.route(table.schema, table.name), wanted.route(table.schema, table.name)
    if was is None or now is None:
        return False
    return (was.target_schema, was.target_table) == (now.target_schema, now.target_table)


def coming(source_id: str, changes: Iterable[Change]) -> tuple[TablePlan, ...]:
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
