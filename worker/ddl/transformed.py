"""Whether a statement means the same for a target whose columns a transform makes: pure."""

from __future__ import annotations

from worker.ddl.clause import Clause, ClauseKind
from worker.ddl.statement import AlterTable, CreateIndex, Ddl, DropIndex
from worker.plan import TablePlan

_BY_COLUMN = frozenset(
    {
        ClauseKind.ADD_COLUMN,
        ClauseKind.DROP_COLUMN,
        ClauseKind.CHANGE_COLUMN,
        ClauseKind.MODIFY_COLUMN,
        ClauseKind.RENAME_COLUMN,
        ClauseKind.SET_DEFAULT,
        ClauseKind.DROP_DEFAULT,
    }
)
_LEFT_OUT = frozenset({ClauseKind.HOW, ClauseKind.PARTITIONING, ClauseKind.RENAME_TABLE, ClauseKind.DROP_FOREIGN_KEY})
"""What merged tables get nothing of."""


def beyond_transform(ddl: Ddl, plan: TablePlan) -> str:
    """Why the statement cannot run at the target as it stands; "" when it can.

    Clauses on columns that `*` passes can: those columns are at the target as they are at the source.
    """
    assert plan.transform is not None  # noqa: S101 - for the type checker: only such plans come here
    if isinstance(ddl, CreateIndex | DropIndex):
        return "its indexes are the target's own"
    if not isinstance(ddl, AlterTable):
        return ""
    for clause in ddl.clauses:
        if clause.kind in _LEFT_OUT:
            continue
        if clause.kind not in _BY_COLUMN:
            return "only clauses about columns that `*` passes are for both"
        if not plan.transform.has_star:
            return "its projection has no `*`, by which columns pass"
        if reason := _beyond(clause, plan):
            return reason
    return ""


def _beyond(clause: Clause, plan: TablePlan) -> str:
    given = {plan.table.columns[at].name.lower() for at in plan.transform.given} if plan.transform else set[str]()
    alike = {
        item.target_name.lower()
        for item in plan.columns
        if item.index >= 0 and item.target_name.lower() == item.column.name.lower()
    }
    at_target = {item.target_name.lower() for item in plan.columns}
    coming = clause.columns if clause.kind is ClauseKind.ADD_COLUMN else (clause.new_name,)
    touched = () if clause.kind is ClauseKind.ADD_COLUMN else clause.columns
    for name in touched:
        if name.lower() in given:
            return f"an expression names column {name}"
        if name.lower() not in alike:
            return f"column {name} is not at the target under this name"
    kept = {name.lower() for name in touched}
    for name in coming:
        if name and name.lower() in at_target - kept:
            return f"the target has another column {name}"
    return ""
