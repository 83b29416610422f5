"""Statements on a table whose columns at the target are those of a transform, and what an operator does who follows the
printed way out."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.ways_out.printed import Printed
from tests.integration.ways_out.situations.situation import ONE, Merge, WayOut
from tests.support.wait import until
from tests.support.world import Family


def _projection(items: str) -> Callable[[Family], str]:
    def text(family: Family) -> str:
        rule = f'transforms:\n  t: {{schema-pattern: "{family.name}_*", projection: "{items}"}}\n'
        return family.task(extra=rule).replace("    route-rules:", "    transform-rules: [t]\n    route-rules:")

    return text


_BEFORE = _projection("*, note AS remark, upper(customer) AS loud")
_AFTER = _projection("id, customer, amount, state, token, created, upper(customer) AS loud")


def _stopped(merge: Merge, clause: str, customer: str) -> Printed:
    """Alter the shard table, and insert a row that needs the change. The task stops before the statement."""
    merge.source(1).execute(f"ALTER TABLE {merge.shard(1)} {clause}")
    merge.insert(1, 1, customer)

    def found() -> Printed | None:
        printed = merge.operator.stopped(50021, ONE)
        return printed if clause in printed.message else None

    return until(found, f"the task stops before {clause}", 120)


def _widen(merge: Merge) -> Printed:
    """A column is widened that an expression names."""
    return _stopped(merge, "MODIFY customer VARCHAR(200) NOT NULL", "c" * 150)


def _follow(merge: Merge, printed: Printed) -> None:
    """Then a column is widened that has another name at the target, and it is dropped."""
    merge.target(f"ALTER TABLE {merge.merged} MODIFY customer VARCHAR(200) NOT NULL")
    merge.operator.runs(printed, "binlog skip")
    printed = _stopped(merge, "MODIFY note VARCHAR(200)", "renamed")
    merge.operator.runs(printed, "binlog replace", statement=f"ALTER TABLE {merge.shard(1)} MODIFY remark VARCHAR(200)")
    merge.source(1).execute(f"UPDATE {merge.shard(1)} SET note = REPEAT('n', 150) WHERE id = 1")
    printed = _stopped(merge, "DROP COLUMN note", "dropped")
    assert merge.world.target.query(f"SELECT COUNT(*) FROM {merge.merged} WHERE remark = REPEAT('n', 150)") == [(1,)]
    merge.operator.runs(printed, "stop-task")
    merge.file(_AFTER(merge.family))
    merge.operator.runs(printed, "start-task")
    merge.operator.runs(merge.operator.stopped(50021, ONE), "binlog skip")
    merge.world.settle([merge.family.name])
    wrong = f"SELECT COUNT(*) FROM {merge.merged} WHERE CONVERT(loud USING utf8mb4) <> UPPER(customer)"
    assert merge.world.target.query(wrong) == [(0,)]


TRANSFORM_WAYS_OUT = (
    WayOut(50021, "a column is altered that an expression names", _widen, _follow, _BEFORE, tables=1, sources=1),
)
