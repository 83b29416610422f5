"""Finds rows that a shard table has already at the target table into which update-task would copy its history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, quote_name, rows, text_of
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.tables.row_ownership import (
    AllRows,
    KeyRange,
    NotSeparable,
    Owned,
    owned_rows,
    separated_rows,
)
from shardmerge.worker.target.tables.target_table import find_target

_UNKNOWN_OTHERS = "other shard tables have rows in it that are not merged into it now"


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
    copies = _read_copies(session, who)
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for number, table in enumerate(tables):
        numbers[table.full_name].add(number)
    targets: dict[str, Table | None] = {}
    for plan in added:
        at = plan.target_name
        if at not in targets:
            targets[at] = find_target(session, plan)
        found = targets[at]
        if found is None:
            continue
        is_earlier, others = copies.of(plan, numbers[plan.table.full_name])
        owned = owned_rows(plan, merged)
        has_unknown = isinstance(owned, AllRows) and others
        if has_unknown:
            owned = separated_rows(plan, (plan,))
        if not is_earlier and not _is_indexed(owned, found):
            continue
        condition = "" if isinstance(owned, AllRows | NotSeparable) else f" WHERE {owned.condition}"
        if not rows(session, f"SELECT 1 FROM {at}{condition} LIMIT 1"):
            continue
        values = {"task": who.task, "source": who.source, "table": plan.table.full_name, "target": at}
        if has_unknown:  # a shard table that is not merged now may have had the same ids or texts
            return errors.replicate.UPDATE_MIXED_ROWS(**values, why=_UNKNOWN_OTHERS)
        if isinstance(owned, NotSeparable):
            return errors.replicate.UPDATE_MIXED_ROWS(**values, why=owned.why)
        return errors.replicate.UPDATE_OWN_ROWS(**values, removal=f"DELETE FROM {at}{condition};")
    return None


_Target = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Copies:
    """The recorded copies of all tasks. ``own``: of this subtask's shard tables, by number; ``counts``: how many there
    are of all, by target; both with targets in lower case."""

    own: Mapping[int, _Target]
    counts: Mapping[_Target, int]

    def of(self, plan: TablePlan, numbers: Collection[int]) -> tuple[bool, bool]:
        """Whether the shard table may have been merged into the target of ``plan`` before, and whether the copy of
        another one into it is recorded. There is no record of a copy that the table has left before its end.
        ``numbers``: of the shard table."""
        target = plan.target_schema.lower(), plan.target_table.lower()
        is_earlier = any(self.own.get(number, target) == target for number in numbers)
        same = sum(1 for number in numbers if self.own.get(number) == target)
        return is_earlier, self.counts.get(target, 0) > same


def _read_copies(session: Session, who: SubtaskKey) -> _Copies:
    """Raises ``pymysql.MySQLError``."""
    own: dict[int, _Target] = {}
    counts: Counter[_Target] = Counter()
    columns = "`task`, `source`, `shard`, `target_schema`, `target_table`"
    for task, source, shard, schema, table in rows(
        session, f"SELECT {columns} FROM {quote_name(who.schema)}.`snapshot_table`"
    ):
        target = text_of(schema).lower(), text_of(table).lower()
        if (text_of(task), text_of(source)) == who[1:]:
            own[int(str(shard))] = target
        counts[target] += 1
    return _Copies(own, counts)


def _is_indexed(owned: Owned, found: Table) -> bool:
    """Whether a read of the rows is short although they may not exist."""
    return isinstance(owned, KeyRange) and any(
        unique[0].lower() == owned.column.lower() for unique in found.unique_keys
    )
