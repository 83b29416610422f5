"""Removes a shard table's rows: the whole target if no other table is merged into it, else its `partition id` range, or
the rows with the texts that a route extracts from its names."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.proto import errors, failpoints
from shardmerge.worker.core.mysql.connection import Session, execute, quote_name, rows
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Table, ValueKind
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.decide.actions import ShardTarget
from shardmerge.worker.ddl.execute.run_once import check_epoch
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.target.apply.statement_waits import naming_waits
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.tables.row_ownership import (
    AllRows,
    ExtractedTexts,
    KeyRange,
    NotSeparable,
    Owned,
    owned_rows,
)
from shardmerge.worker.target.tables.target_table import find_target

_DELETE_ROWS = 10_000
_READ_ROWS = 50_000


def drop_shard(context: StatementContext, shard: ShardTarget) -> None:
    """Drop a shard table with its rows; its target too when no other shard table remains."""
    _remove(context, shard, f"DROP TABLE IF EXISTS {shard.target.quoted}")
    context.changes.remove(shard.number)


def truncate_shard(context: StatementContext, shard: ShardTarget) -> None:
    """Remove all rows of a shard table."""
    _remove(context, shard, f"TRUNCATE TABLE {shard.target.quoted}")


def _remove(context: StatementContext, shard: ShardTarget, of_all: str) -> None:
    """``of_all``: the statement that removes all rows of the target."""
    match _owned(context, shard):
        case AllRows():
            context.run([shard.target], of_all)
        case KeyRange() as between:
            order = f" ORDER BY {quote_name(between.column)}"
            _delete(context, shard.target, between.condition, f"{order} LIMIT {_DELETE_ROWS}")
        case ExtractedTexts() as texts:
            found = find_target(context.session, shard.plan)
            listed = ", ".join(quote_name(column.name) for column in found.key_columns) if found is not None else ""
            order = f" ORDER BY {listed}" if listed else ""
            for part in parts_of(context.session, shard.target, found, context.stop):
                _delete(context, shard.target, f"{texts.condition}{part}", f"{order} LIMIT {_DELETE_ROWS}")
        case NotSeparable(why=why):
            raise context.refusal(
                errors.ddl.ROWS_NOT_TOLD_APART, table=shard.plan.table.full_name, target=shard.target.quoted, why=why
            )


def parts_of(
    session: Session, target: TargetTable, found: Table | None, stop: StopSignal, most: int = _READ_ROWS
) -> Iterator[str]:
    """Conditions that cut the target by its key, each with a leading " AND ": the rows of the shard table are
    everywhere in it, and a DELETE with a LIMIT alone would read the same rows of other shard tables again and again.
    ``most``: about as many rows are in a part. Raises ``pymysql.MySQLError``."""
    first = found.key_columns[0] if found is not None and found.key and not found.key_hidden else None
    if found is None or first is None or first.kind is not ValueKind.INTEGER:
        yield ""
        return
    name, table = quote_name(first.name), target.quoted
    index = f"FORCE INDEX ({quote_name(found.key_name)})"
    lower: int | None = None
    while not stop.is_set:
        start = "" if lower is None else f" AND {name} >= {lower}"
        where = "" if lower is None else f" WHERE {name} >= {lower}"
        after = rows(session, f"SELECT {name} FROM {table} {index}{where} ORDER BY {name} LIMIT 1 OFFSET {most}")
        if after and lower is not None and int(after[0][0]) <= lower:
            # One value of so many shard tables.
            after = rows(session, f"SELECT {name} FROM {table} {index} WHERE {name} > {lower} ORDER BY {name} LIMIT 1")
        upper = int(after[0][0]) if after else None
        yield start if upper is None else f"{start} AND {name} < {upper}"
        if upper is None:
            return
        lower = upper


def _owned(context: StatementContext, shard: ShardTarget) -> Owned:
    """Which of the target's rows belong to the shard table, considering shard tables of all tasks, sources and
    streams."""
    found = read_target_members(context.session, context.who)
    if found.unrecorded_sources:
        return NotSeparable(f"source {found.unrecorded_sources[0]} has not begun, so its shard tables are not known")
    gone = context.changes.removed
    mine = {number: plan for number, plan in found.own.items() if number not in gone} | context.plans
    others = (*found.same_task, *found.other_tasks)
    staying = [*(plan for number, plan in mine.items() if number not in context.removed_shards), *others]
    if shard.number in context.removed_shards and all(plan.target != shard.target for plan in staying):
        return AllRows()
    return owned_rows(shard.plan, [*mine.values(), *others])


def _delete(context: StatementContext, target: TargetTable, condition: str, end: str) -> None:
    """Delete in parts, each in one transaction that checks the epoch: an older process deletes no newer row (I3).
    ``end``: the end of the DELETE, which limits a part."""
    text = f"DELETE FROM {target.quoted} WHERE {condition}{end}"
    session = context.session
    doing = f"rows to be deleted: {target.quoted}, {condition}"

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
