"""Whether a statement means the same for a target whose columns a transform makes: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proto.lexer import Token, tokens
from worker.ddl.alter import commas
from worker.ddl.clause import Clause, ClauseKind
from worker.ddl.shape import OF_COLUMNS, OF_INDEX
from worker.ddl.statement import AlterTable, CreateIndex, Ddl, DropIndex
from worker.ddl.words import NotUnderstoodError, Words
from worker.plan import TablePlan

_NEW_INDEX = frozenset({ClauseKind.ADD_INDEX, ClauseKind.ADD_UNIQUE})
_ALIKE = frozenset({ClauseKind.HOW, ClauseKind.OPTION})
"""Of a table's options merged tables get its comment, and the character set of columns to come."""

_NO_STAR = "its projection has no `*`, by which columns pass"


def beyond_transform(
    text: str, ddl: Ddl, plan: TablePlan, indexes: Mapping[str, tuple[str, ...]], sql_mode: int
) -> str:
    """Why a statement cannot run at the target as it stands; "" when it can. ``text``: as merged tables get it, read as
    ``ddl``.

    Clauses on columns that `*` passes can: those columns are at the target as they are at the source. So can those on
    indexes of columns that pass under their own names. ``indexes``: the columns of those that the table has, by name in
    lower case.
    """
    assert plan.transform is not None  # noqa: S101 - for the type checker: only such plans come here
    found = tokens(text, sql_mode)
    match ddl:
        case CreateIndex(table=table):
            return _beyond_index(_listed([token for token in found if token.start >= table.end]), plan)
        case DropIndex(name=name):
            return _beyond_index(indexes.get(name.lower(), ()), plan)
        case AlterTable():
            pass
        case _:
            return ""
    for clause in ddl.clauses:
        if clause.kind in OF_COLUMNS or clause.kind is ClauseKind.ADD_COLUMN:
            reason = _beyond(clause, plan) if plan.transform.has_star else _NO_STAR
        elif clause.kind in _NEW_INDEX:
            own = [token for token in found if clause.start <= token.start < clause.end]
            reason = _beyond_index(_listed(own), plan)
        elif clause.kind in OF_INDEX:
            reason = _beyond_index(indexes.get(clause.name.lower(), ()), plan)
        else:
            reason = "" if clause.kind in _ALIKE else "only clauses about columns and indexes can be for both"
        if reason:
            return reason
    return ""


def _listed(found: Sequence[Token]) -> tuple[str, ...]:
    """The columns of an index that is defined: those in the first parentheses; () where one is no plain column."""
    start = next((at for at, token in enumerate(found) if token.is_symbol("(")), len(found))
    words = Words(found[start:], "")
    if not words.group():
        return ()
    columns: list[str] = []
    for part in commas(found[start + 1 : start + words.at - 1]):
        column = Words(part, "")
        try:
            columns.append(column.name())
        except NotUnderstoodError:
            return ()
        column.group()  # of how many characters
        column.take("ASC", "DESC")
        if not column.at_end:
            return ()
    return tuple(columns)


def _beyond_index(columns: tuple[str, ...], plan: TablePlan) -> str:
    """``columns``: of the index, () when they are not known."""
    alike = _alike(plan)
    if not columns:
        return "of which columns the index is cannot be told"
    for name in columns:
        if name.lower() not in alike:
            return f"column {name} of the index is not at the target under this name"
    return ""


def _alike(plan: TablePlan) -> set[str]:
    """Lower-case names of the columns that pass under their own."""
    return {
        item.target_name.lower()
        for item in plan.columns
        if item.index >= 0 and item.target_name.lower() == item.column.name.lower()
    }


def _beyond(clause: Clause, plan: TablePlan) -> str:
    given = {plan.table.columns[at].name.lower() for at in plan.transform.given} if plan.transform else set[str]()
    alike = _alike(plan)
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
