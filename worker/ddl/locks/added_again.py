"""Columns that shard tables drop and add again, under ``shard-mode: optimistic``.

The target keeps such a column while any shard table has it, so a shard table that adds it again would find its former
values there: it is parked. Once all shard tables of the target have dropped the column, none of its values exists at a
source any more: the lock then drops the column at the target before its statement adds it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.information_schema import read_tables
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.sql.statement import AlterTable
from shardmerge.worker.ddl.structure.structure_after import reparse
from shardmerge.worker.target.members.member_cache import TaskMembers
from shardmerge.worker.target.records import dropped_columns
from shardmerge.worker.target.records.dropped_columns import Member
from shardmerge.worker.target.records.parked_tables import Parked

Dropped = Mapping[Member, frozenset[str]]
"""The dropped columns of each shard table, with lower-case names; see worker/target/records/dropped_columns.py."""


def added_columns(item: Parked) -> dict[str, str]:
    """The columns that the statement of a parked table adds: their names by lower-case name."""
    _, ddl = reparse(item)
    if not isinstance(ddl, AlterTable):
        return {}
    added = (clause for clause in ddl.clauses if clause.kind is ClauseKind.ADD_COLUMN)
    return {name.lower(): name for clause in added for name in clause.columns}


def dropped_by_all(item: Parked, target: TargetTable, members: TaskMembers, dropped: Dropped) -> tuple[str, ...]:
    """The columns that the statement of a parked table adds again and that no shard table of ``target`` has any more;
    () when one of those that it adds again has values in any shard table. ``item``: of a table of ``target``. Pure.
    """
    added = added_columns(item)
    shards = [
        ((source, number), plan)
        for source, found in members.sources.items()
        for number, plan in found.plans.items()
        if plan.target == target
    ]
    again = sorted(key for key in added if any(key in dropped.get(member, ()) for member, _ in shards))
    for key in again:
        for member, plan in shards:
            # A table may have a dropped column again: an operator has decided about the statement that added it.
            if key not in dropped.get(member, ()) or any(one.name.lower() == key for one in plan.table.columns):
                return ()
    return tuple(added[key] for key in again)


def dropped_after_release(
    session: Session, who: SubtaskKey, released: Sequence[tuple[TablePlan, Table]]
) -> dict[Member, frozenset[str]]:
    """The changed records of dropped columns of shard tables that are released, given before and after the statement.

    Where an operator has decided that the statement does not run, the target keeps a column that it drops, with the
    former values of the table's rows. Raises ``pymysql.MySQLError``.
    """
    lost = {plan.shard: _names(plan.table) - _names(after) for plan, after in released}
    targets = {plan.target.names for plan, _ in released if lost[plan.shard]}
    kept = {_key((found.schema, found.name)): _names(found) for found in read_tables(session, sorted(targets))}
    recorded = dropped_columns.read(session, who.schema, who.task)
    changed: dict[Member, frozenset[str]] = {}
    for plan, after in released:
        member = who.source, plan.shard
        before = recorded.get(member, frozenset[str]())
        still_there = lost[plan.shard] & kept.get(_key(plan.target.names), frozenset[str]())
        now = (before | still_there) - _names(after)
        if now != before:
            changed[member] = now
    return changed


def _key(names: tuple[str, str]) -> tuple[str, str]:
    """The same for both spellings: some servers store names in lower case."""
    schema, name = names
    return schema.lower(), name.lower()


def _names(table: Table) -> frozenset[str]:
    return frozenset(column.name.lower() for column in table.columns)
