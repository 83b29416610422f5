"""Finds rows that a shard table has already at the target table into which update-task would copy its history."""

from __future__ import annotations

from collections.abc import Sequence

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, quote_name, rows, text_of
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.tables.row_ownership import AllRows, KeyRange, NotSeparable, Owned, owned_rows
from shardmerge.worker.target.tables.target_table import find_target


def rows_before_copy(
    session: Session, who: SubtaskKey, tables: Sequence[Table], added: Sequence[TablePlan]
) -> ShardmergeError | None:
    """UPDATE_OWN_ROWS or UPDATE_MIXED_ROWS for the first of ``added`` that has rows at its target already: from before
    it left the task or moved. Rows with other keys would stay, a table without a key would have each row twice.

    ``tables``: the recorded structures. Raises ``pymysql.MySQLError`` and the rules' errors.
    """
    if not added:
        return None
    members = read_target_members(session, who)
    names = {plan.table.full_name for plan in added}
    own = [plan for plan in members.own.values() if plan.table.full_name not in names]
    merged = (*added, *own, *members.same_task, *members.other_tasks)
    for plan in added:
        found = find_target(session, plan)
        if found is None:
            continue
        is_earlier, others = _earlier_copies(session, who, tables, plan)
        owned = owned_rows(plan, merged)
        if isinstance(owned, AllRows) and others:
            owned = NotSeparable("other shard tables have rows in it that are not merged into it now")
        if not is_earlier and not _is_indexed(owned, found):
            continue
        condition = "" if isinstance(owned, AllRows | NotSeparable) else f" WHERE {owned.condition}"
        at = plan.target_name
        if not rows(session, f"SELECT 1 FROM {at}{condition} LIMIT 1"):
            continue
        values = {"task": who.task, "source": who.source, "table": plan.table.full_name, "target": at}
        if isinstance(owned, NotSeparable):
            return errors.replicate.UPDATE_MIXED_ROWS(**values, why=owned.why)
        return errors.replicate.UPDATE_OWN_ROWS(**values, removal=f"DELETE FROM {at}{condition};")
    return None


def _earlier_copies(session: Session, who: SubtaskKey, tables: Sequence[Table], plan: TablePlan) -> tuple[bool, bool]:
    """Whether the shard table may have been merged into the target of ``plan`` before, and whether the copy of another
    one into it is recorded. There is no record of a copy that the table has left before its end."""
    copied = rows(
        session,
        "SELECT `task`, `source`, `shard`, LOWER(`target_schema`) = %s AND LOWER(`target_table`) = %s FROM "
        f"{quote_name(who.schema)}.`snapshot_table`",
        (plan.target_schema.lower(), plan.target_table.lower()),
    )
    of_name = {number for number, table in enumerate(tables) if table.full_name == plan.table.full_name}
    unrecorded, here, others = set(of_name), False, False
    for task, source, shard, is_here in copied:
        is_own = (text_of(task), text_of(source)) == who[1:] and int(str(shard)) in of_name
        if is_own:
            unrecorded.discard(int(str(shard)))
        here |= bool(is_own and is_here)
        others |= bool(is_here and not is_own)
    return here or bool(unrecorded), others


def _is_indexed(owned: Owned, found: Table) -> bool:
    """Whether a read of the rows is short although they may not exist."""
    return isinstance(owned, KeyRange) and any(
        unique[0].lower() == owned.column.lower() for unique in found.unique_keys
    )
