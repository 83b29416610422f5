"""Removes a shard table's rows: the whole target if no other table is merged into it, else its `partition id` range."""

from __future__ import annotations

from shardmerge.proto import errors, failpoints
from shardmerge.worker.core.mysql.connection import execute, quote_name
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.decide.actions import ShardTarget
from shardmerge.worker.ddl.execute.run_once import check_epoch
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.target.apply.statement_waits import naming_waits
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.tables.row_ownership import AllRows, KeyRange, NotSeparable, owned_rows

_DELETE_ROWS = 10_000


def drop_shard(context: StatementContext, shard: ShardTarget) -> None:
    """Drop a shard table with its rows; its target too when no other shard table remains."""
    _remove(context, shard, f"DROP TABLE IF EXISTS {shard.target.quoted}")
    context.changes.removed.add(shard.number)


def truncate_shard(context: StatementContext, shard: ShardTarget) -> None:
    """Remove all rows of a shard table."""
    _remove(context, shard, f"TRUNCATE TABLE {shard.target.quoted}")


def _remove(context: StatementContext, shard: ShardTarget, of_all: str) -> None:
    """``of_all``: the statement that removes all rows of the target."""
    match _owned(context, shard):
        case AllRows():
            context.run([shard.target], of_all)
        case KeyRange() as between:
            _delete(context, shard.target, between)
        case NotSeparable(why=why):
            raise context.refusal(
                errors.ddl.ROWS_NOT_TOLD_APART, table=shard.plan.table.full_name, target=shard.target.quoted, why=why
            )


def _owned(context: StatementContext, shard: ShardTarget) -> AllRows | KeyRange | NotSeparable:
    """Which of the target's rows belong to the shard table, considering shard tables of all tasks, sources and
    streams."""
    found = read_target_members(context.session, *context.who)
    if found.unrecorded_sources:
        return NotSeparable(f"source {found.unrecorded_sources[0]} has not begun, so its shard tables are not known")
    gone = context.changes.removed
    mine = {number: plan for number, plan in found.own.items() if number not in gone} | context.plans
    others = (*found.same_task, *found.other_tasks)
    staying = [*(plan for number, plan in mine.items() if number not in context.removed_shards), *others]
    if shard.number in context.removed_shards and all(plan.target != shard.target for plan in staying):
        return AllRows()
    return owned_rows(shard.plan, [*mine.values(), *others])


def _delete(context: StatementContext, target: TargetTable, owned: KeyRange) -> None:
    """Delete in parts, each in one transaction that checks the epoch: an older process deletes no newer row (I3)."""
    text = (
        f"DELETE FROM {target.quoted} WHERE {owned.condition} ORDER BY {quote_name(owned.column)} LIMIT {_DELETE_ROWS}"
    )
    session = context.session
    doing = f"rows to be deleted: {target.quoted}, {owned.condition}"

    def show(wait: str) -> None:
        context.on_wait(f"{doing}; they wait for {wait}" if wait else doing)

    deleted = 1
    while deleted and not context.stop.is_set:
        context.on_wait(doing)
        session.begin()
        check_epoch(session, context.who, context.epoch, lock=True)
        with naming_waits(session, [target], show):
            deleted = execute(session, text)
        failpoints.hit("ddl.deleting")
        session.commit()
    context.on_wait("")
