"""Records shard tables without which an operator has let the lock of a statement go on (pessimistic).

    unlocked_statement   one row per shard table and lock

`shard-ddl-lock unlock` lets a statement run, or lets the tables that are parked at it continue without it, although
other shard tables have not reached it. When one of these reaches it, it continues at once: the statement does not run
at the target once more, which would fail, or change values of rows that have them after the first run. Its row is
deleted in the transaction in which it continues.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.records import subtask_rows

_NAME = "unlocked_statement"


@dataclass(frozen=True, slots=True)
class UnlockedStatement:
    """``generation``: of the lock. ``form``: of the statement, equal for equal statements. ``structure``: digest of the
    shard tables' structure after it, "" if it leaves the structure as it is. ``at``: Unix seconds."""

    generation: str
    form: str
    structure: str
    at: float

    def is_passed_by(self, form: str, structure: str) -> bool:
        """Whether a statement of this ``form``, with this ``structure`` after it, is the unlocked one, in any spelling
        and in any order with others."""
        return self.form == form or (self.structure != "" and self.structure == structure)


def read(session: Session, who: SubtaskKey) -> dict[int, list[UnlockedStatement]]:
    """By the number of each shard table that has some, in the order of the locks."""
    found: dict[int, list[UnlockedStatement]] = {}
    columns = "`number`, `generation`, `form`, `structure`, `unlocked_at`"
    for number, *values in subtask_rows.select(session, who, _NAME, columns, "ORDER BY `unlocked_at`"):
        generation, form, structure, at = values
        unlocked = UnlockedStatement(str(generation), str(form), str(structure), float(at))
        found.setdefault(int(number), []).append(unlocked)
    return found


def write(session: Session, who: SubtaskKey, unlocked: UnlockedStatement, late: Collection[TablePlan]) -> None:
    """Inside the caller's transaction. ``late``: of all sources of the task. A source that has started over meanwhile
    has no table of that number, and gets no row."""
    schema = quote_name(who.schema)
    values = unlocked.generation, unlocked.form, unlocked.structure, unlocked.at
    with session.cursor() as cursor:
        for source in sorted({plan.source for plan in late}):
            numbers = tuple(sorted(plan.shard for plan in late if plan.source == source))
            cursor.execute(
                f"REPLACE INTO {schema}.`{_NAME}` SELECT `task`, `source`, `number`, %s, %s, %s, %s "
                f"FROM {schema}.`table_structure` WHERE `task` = %s AND `source` = %s AND `number` IN %s",
                (*values, who.task, source, numbers),
            )


def delete(session: Session, who: SubtaskKey, passed: Mapping[int, str]) -> None:
    """Inside the caller's transaction. ``passed``: the generation of the lock, by the table's number."""
    for values in passed.items():
        subtask_rows.delete(session, who, _NAME, "AND `number` = %s AND `generation` = %s", values)
