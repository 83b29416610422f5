"""What of an ALTER TABLE, CREATE INDEX or DROP INDEX is for merged tables: pure.

A merged table has the shard tables' columns, indexes and checks. It has none of their foreign keys, partitions and
storage options (worker/create_table.py), so clauses about those are left out; so is how the source did the work, which
says nothing about how the target can.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proto.lexer import Token, tokens
from worker.ddl.alter import elements
from worker.ddl.clause import Clause, ClauseKind
from worker.ddl.rewrite import renamed, without, without_references
from worker.ddl.statement import AlterTable, CreateIndex, Ddl, DropIndex, parse_ddl
from worker.ddl.tabletext import table_options
from worker.ddl.words import Words, keywords
from worker.plan import TargetTable
from worker.relay.model import Statement

_NOT_MERGED = frozenset(
    {ClauseKind.PARTITIONING, ClauseKind.HOW, ClauseKind.RENAME_TABLE, ClauseKind.ORDER_BY, ClauseKind.DROP_FOREIGN_KEY}
)
_BY_NAME = frozenset({ClauseKind.DROP_CHECK, ClauseKind.ALTER_CHECK, ClauseKind.DROP_CONSTRAINT})
OF_COLUMNS = frozenset(
    {
        ClauseKind.DROP_COLUMN,
        ClauseKind.CHANGE_COLUMN,
        ClauseKind.MODIFY_COLUMN,
        ClauseKind.RENAME_COLUMN,
        ClauseKind.SET_DEFAULT,
        ClauseKind.DROP_DEFAULT,
    }
)
"""Clauses that name columns which are there."""

Changing = AlterTable | CreateIndex | DropIndex


def merged_text(statement: Statement, ddl: Changing, indexes: Collection[str] | None = None) -> str:
    """The statement as merged tables get it, its table still named as at the source; "" when nothing of it is for
    them. ``indexes``: names of those that the table has, None: any. Others came with a foreign key at the source."""
    text = statement.text
    known = None if indexes is None else {name.lower() for name in indexes} | {"primary"}
    if isinstance(ddl, DropIndex):
        return text if known is None or ddl.name.lower() in known else ""
    if not isinstance(ddl, AlterTable):
        return text

    own = without_references(text, ddl)
    again = _parsed(own, statement)
    if not isinstance(again, AlterTable):
        return ""
    mode = again.sql_mode

    def is_unwanted(clause: Clause) -> bool:
        is_strange = known is not None and clause.kind in OF_INDEX and clause.name.lower() not in known
        return clause.kind in _NOT_MERGED or is_strange or not _kept(own, clause, mode)

    text = without(own, again, is_unwanted)
    again = _parsed(text, statement)
    return _without_storage(text, again) if isinstance(again, AlterTable) else ""


OF_INDEX = frozenset({ClauseKind.DROP_INDEX, ClauseKind.RENAME_INDEX, ClauseKind.ALTER_INDEX})
"""Clauses that name an index which is there."""


def placed(text: str, statement: Statement, target: TargetTable) -> str:
    """``text``, of :func:`merged_text`, for another table."""
    ddl = _parsed(text, statement)
    assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: the text was parsed before
    own = ddl.table.name
    return renamed(text, ddl, lambda schema, table: target.names if (schema, table) == own else None)


def named_checks(ddl: Ddl, unique: Collection[str]) -> bool:
    """Whether the statement names a constraint that has another name at the target; ``unique``: names of the table's
    unique keys, which are the same there."""
    if not isinstance(ddl, AlterTable):
        return False
    names = {name.lower() for name in unique}
    return any(
        clause.kind in _BY_NAME and not (clause.kind is ClauseKind.DROP_CONSTRAINT and clause.name.lower() in names)
        for clause in ddl.clauses
    )


def changed_columns(ddl: Ddl) -> frozenset[str]:
    """Lower-case names of the columns that the statement takes away or changes."""
    if not isinstance(ddl, AlterTable):
        return frozenset()
    return frozenset(column.lower() for clause in ddl.clauses if clause.kind in OF_COLUMNS for column in clause.columns)


def lost_names(ddl: Ddl) -> frozenset[str]:
    """Lower-case names of the columns that are not there under these names after the statement."""
    if not isinstance(ddl, AlterTable):
        return frozenset()
    lost: set[str] = set()
    for clause in ddl.clauses:
        if clause.kind is ClauseKind.DROP_COLUMN:
            lost.update(column.lower() for column in clause.columns)
        elif clause.kind in (ClauseKind.RENAME_COLUMN, ClauseKind.CHANGE_COLUMN) and clause.columns:
            former = clause.columns[0].lower()
            if clause.new_name.lower() != former:
                lost.add(former)
    return frozenset(lost)


def renamed_columns(ddl: Ddl) -> dict[str, str]:
    """The former name of each column that the statement only renames, by its new one; in lower case."""
    if not isinstance(ddl, AlterTable):
        return {}
    return {
        clause.new_name.lower(): clause.columns[0].lower()
        for clause in ddl.clauses
        if clause.kind is ClauseKind.RENAME_COLUMN
    }


_DRAWN = keywords(
    "CONNECTION_ID CURRENT_ROLE CURRENT_USER DATABASE LASTVAL LAST_INSERT_ID NEXTVAL RAND RANDOM_BYTES SCHEMA "
    "SESSION_USER SETVAL SYSDATE SYSTEM_USER SYS_GUID USER UUID UUID_SHORT UUID_V4 UUID_V7 VALUE VERSION"
)
"""Functions whose values another server cannot repeat; VALUE: of NEXT VALUE FOR a sequence."""


def drawn_column(statement: Statement, ddl: Ddl) -> str:
    """A column that the statement adds, with values for the rows that are there which each server draws for itself: the
    next numbers in an order of its own, random ones; "" for none."""
    if not isinstance(ddl, AlterTable):
        return ""
    found = tokens(statement.text, ddl.sql_mode)
    for clause in ddl.clauses:
        if clause.kind is ClauseKind.ADD_COLUMN:
            own = [token for token in found if clause.start <= token.start < clause.end]
            parts = elements(own) or [own]
            for column, part in zip(clause.columns, parts, strict=False):
                if _is_drawn(part):
                    return column
    return ""


def _is_drawn(part: Sequence[Token]) -> bool:
    if any(token.is_word("AUTO_INCREMENT") for token in part[1:]):
        return True
    for at, token in enumerate(part):
        if token.is_word("DEFAULT"):
            words = Words(part[at + 1 :], "")
            if not words.group():
                words.advance()  # a function's name, or a literal
                words.group()
            value = part[at + 1 : at + 1 + words.at]
            return any(each.is_word(*_DRAWN) or each.is_symbol("@") for each in value)
    return False


def _kept(text: str, clause: Clause, sql_mode: int) -> str:
    """What stays of a clause, which may be several options without commas."""
    if clause.kind is not ClauseKind.OPTION:
        return text[clause.start : clause.end]
    own = [token for token in tokens(text, sql_mode) if clause.start <= token.start < clause.end]
    return " ".join(table_options(text, own)[0])


def _without_storage(text: str, ddl: AlterTable) -> str:
    for clause in reversed(ddl.clauses):
        if clause.kind is ClauseKind.OPTION:
            text = text[: clause.start] + _kept(text, clause, ddl.sql_mode) + text[clause.end :]
    return text


def _parsed(text: str, statement: Statement) -> Ddl | None:
    return parse_ddl(text, statement.schema, statement.sql_mode) if text else None
