"""Finds whose row has a value that another row may not have, for an error that names it."""

from __future__ import annotations

from shardmerge.worker.core.table_plan import PartitionId, TablePlan, TargetTable
from shardmerge.worker.target.members.target_members import TargetMembers


def owner_of(members: TargetMembers, target: TargetTable, merged_id: int) -> TablePlan | None:
    """The shard table of ``target`` to which only the id belongs; None if there is none, or several."""
    found = {
        (plan.source, plan.table.full_name): plan
        for plan in _merged_into(members, target)
        if any(
            isinstance(item.mapping, PartitionId)
            and not item.mapping.is_shared
            and item.mapping.prefix <= merged_id <= item.mapping.last
            for item in plan.columns
        )
    }
    return next(iter(found.values())) if len(found) == 1 else None


def is_only_table(members: TargetMembers, target: TargetTable) -> bool:
    """Whether the rows of ``target`` are those of one shard table, as far as tasks have merged them."""
    return len({(plan.source, plan.table.full_name) for plan in _merged_into(members, target)}) == 1


def _merged_into(members: TargetMembers, target: TargetTable) -> list[TablePlan]:
    every = (*members.own.values(), *members.same_task, *members.other_tasks)
    return [plan for plan in every if plan.target == target]
