"""Decides whether a statement can also run at a target whose columns a transform computes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardmerge.proto.sql_lexer import Token, tokens
from shardmerge.worker.core.sql.clause import OF_COLUMNS, Clause, ClauseKind
from shardmerge.worker.core.sql.token_reader import NotUnderstoodError, TokenReader, split_at_commas
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateIndex, Ddl, DropIndex
from shardmerge.worker.ddl.sql.target_statement import OF_INDEX

_NEW_INDEX = frozenset({ClauseKind.ADD_INDEX, ClauseKind.ADD_UNIQUE})
_ALIKE = frozenset({ClauseKind.HOW, ClauseKind.OPTION})
"""Of a table's options, merged tables get the comment and the character set of new columns."""

_NO_STAR = "its projection has no `*`, which would include columns unchanged"


def transform_conflict(
    text: str, ddl: Ddl, plan: TablePlan, indexes: Mapping[str, tuple[str, ...]], sql_mode: int
) -> str:
    """Why a statement cannot run unchanged at the target; "" when it can. ``text``: the statement for merged tables;
    ``ddl``: parsed.

    Clauses on columns that `*` includes can run: the target has these columns as the source has them. So can clauses on
    indexes of columns that keep their names. ``indexes``: the columns of the table's indexes, by lower-case name.
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
    """The columns of an index definition, from the first parentheses; () when one is not a plain column."""
    start = next((at for at, token in enumerate(found) if token.is_symbol("(")), len(found))
    words = TokenReader(found[start:], "")
    if not words.group():
        return ()
    columns: list[str] = []
    for part in split_at_commas(found[start + 1 : start + words.at - 1]):
        column = TokenReader(part, "")
        try:
            columns.append(column.name())
        except NotUnderstoodError:
            return ()
        column.group()  # prefix length
        column.take("ASC", "DESC")
        if not column.at_end:
            return ()
    return tuple(columns)


def _beyond_index(columns: tuple[str, ...], plan: TablePlan) -> str:
    """``columns``: of the index, () when not known."""
    alike = _alike(plan)
    if not columns:
        return "the columns of the index are not known"
    for name in columns:
        if name.lower() not in alike:
            return f"column {name} of the index is not at the target under this name"
    return ""


def _alike(plan: TablePlan) -> set[str]:
    """Lower-case names of the columns that keep their names at the target."""
    return {
        item.target_name.lower()
        for item in plan.columns
        if item.index >= 0 and item.target_name.lower() == item.column.name.lower()
    }


def _beyond(clause: Clause, plan: TablePlan) -> str:
    given = {plan.table.columns[at].name.lower() for at in plan.transform.inputs} if plan.transform else set[str]()
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
