"""Extracts the part of an ALTER TABLE, CREATE INDEX or DROP INDEX that is for merged tables. Pure.

A merged table has the shard tables' columns, indexes and checks, but not their foreign keys, partitions and storage
options (worker/core/mysql/create_table.py), so clauses about those are left out. So are options how the source ran the
statement, which may not fit the target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass

from shardmerge.proto.sql_lexer import Token, tokens
from shardmerge.worker.core.sql.clause import LEAVES_ROWS, OF_COLUMNS, Clause, ClauseKind
from shardmerge.worker.core.sql.token_reader import default_value, keywords
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.sql.alter_parser import add_list_elements
from shardmerge.worker.ddl.sql.create_body import table_options
from shardmerge.worker.ddl.sql.dialect import declared_types
from shardmerge.worker.ddl.sql.rewrite import rename_tables, without_clauses, without_references
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateIndex, Ddl, DropIndex, parse_ddl
from shardmerge.worker.relay.model import Statement

_NOT_MERGED = frozenset(
    {ClauseKind.PARTITIONING, ClauseKind.HOW, ClauseKind.RENAME_TABLE, ClauseKind.ORDER_BY, ClauseKind.DROP_FOREIGN_KEY}
)
_OF_DEFAULT = frozenset({ClauseKind.SET_DEFAULT, ClauseKind.DROP_DEFAULT})
_BY_NAME = frozenset({ClauseKind.DROP_CHECK, ClauseKind.ALTER_CHECK, ClauseKind.DROP_CONSTRAINT})

Changing = AlterTable | CreateIndex | DropIndex


def target_statement(
    statement: Statement, ddl: Changing, indexes: Collection[str] | None = None, numbered: Set[str] = frozenset()
) -> str:
    """The statement for merged tables, still with the source's table name; "" when it has no effect on them.
    ``indexes``: names of the table's indexes, None: any. Other indexes belong to a foreign key at the source.
    ``numbered``: lower-case names of its columns with AUTO_INCREMENT. A server accepts a default of such a column, and
    neither shows nor uses it as one; without AUTO_INCREMENT, as in a merged table, it would be the column's default."""
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
        is_hidden = clause.kind in _OF_DEFAULT and not numbered.isdisjoint(each.lower() for each in clause.columns)
        return clause.kind in _NOT_MERGED or is_strange or is_hidden or not _kept(own, clause, mode)

    text = without_clauses(own, again, is_unwanted)
    again = _parsed(text, statement)
    return _without_storage(text, again) if isinstance(again, AlterTable) else ""


OF_INDEX = frozenset({ClauseKind.DROP_INDEX, ClauseKind.RENAME_INDEX, ClauseKind.ALTER_INDEX})
"""Clauses that name an existing index."""


def for_table(text: str, statement: Statement, target: TargetTable) -> str:
    """``text``, from :func:`target_statement`, for another table."""
    ddl = _parsed(text, statement)
    assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: the text was parsed before
    own = ddl.table.name
    return rename_tables(text, ddl, lambda schema, table: target.names if (schema, table) == own else None)


def names_other_constraint(ddl: Ddl, unique: Collection[str]) -> bool:
    """Whether the statement names a constraint that may have another name at the target. ``unique``: names of the
    table's unique keys, which are the same there."""
    if not isinstance(ddl, AlterTable):
        return False
    names = {name.lower() for name in unique}
    # ADD CONSTRAINT IF NOT EXISTS does nothing at the source where the name is known there.
    return any(
        (clause.kind in _BY_NAME or (clause.kind is ClauseKind.ADD_CHECK and clause.name))
        and not (clause.kind is ClauseKind.DROP_CONSTRAINT and clause.name.lower() in names)
        for clause in ddl.clauses
    )


def changed_columns(ddl: Ddl) -> frozenset[str]:
    """Lower-case names of the columns that the statement drops or changes."""
    if not isinstance(ddl, AlterTable):
        return frozenset()
    return frozenset(column.lower() for clause in ddl.clauses if clause.kind in OF_COLUMNS for column in clause.columns)


def removed_column_names(ddl: Ddl) -> frozenset[str]:
    """Lower-case column names that do not exist after the statement: dropped or renamed."""
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


def reuses_names(ddl: Ddl, after: Table) -> bool:
    """Whether columns get names that the statement takes from others (dropped and added, exchanged). ``after``: the
    table after it."""
    return not removed_column_names(ddl).isdisjoint(column.name.lower() for column in after.columns)


def renamed_columns(ddl: Ddl) -> dict[str, str]:
    """Old names by new ones, in lower case, for columns that the statement only renames."""
    if not isinstance(ddl, AlterTable):
        return {}
    return {
        clause.new_name.lower(): clause.columns[0].lower()
        for clause in ddl.clauses
        if clause.kind is ClauseKind.RENAME_COLUMN
    }


_DRAWN = keywords(
    "CONNECTION_ID CURRENT_ROLE CURRENT_USER CURRVAL DATABASE LASTVAL LAST_INSERT_ID NEXTVAL RAND RANDOM_BYTES SCHEMA "
    "SESSION_USER SETVAL SYSDATE SYSTEM_USER SYS_GUID USER UUID UUID_SHORT UUID_V4 UUID_V7 VALUE VERSION"
)
"""Functions whose values another server cannot reproduce; VALUE: of NEXT VALUE FOR a sequence."""


def nondeterministic_columns(statement: Statement, ddl: Ddl) -> tuple[str, ...]:
    """The added columns whose values in existing rows each server generates itself: sequence numbers in its own order,
    random values."""
    return tuple(column for column, part in _added_columns(statement, ddl) if _is_drawn(part))


def _added_columns(statement: Statement, ddl: Ddl) -> Iterator[tuple[str, Sequence[Token]]]:
    """The names and definitions of the columns that an ALTER TABLE adds."""
    if not isinstance(ddl, AlterTable):
        return
    found = tokens(statement.text, ddl.sql_mode)
    for clause in ddl.clauses:
        if clause.kind is ClauseKind.ADD_COLUMN:
            own = [token for token in found if clause.start <= token.start < clause.end]
            yield from zip(clause.columns, add_list_elements(own) or [own], strict=False)


_TIMES = keywords(
    "CURDATE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURTIME LOCALTIME LOCALTIMESTAMP NOW UNIX_TIMESTAMP UTC_DATE "
    "UTC_TIME UTC_TIMESTAMP"
)
"""Functions of the time at which the statement runs."""


def time_dependent_columns(
    statement: Statement, ddl: Ddl, table: Table, explicit_timestamp: bool | None, *, is_mariadb: bool
) -> tuple[str, ...]:
    """The columns that get the statement's own time in existing rows of ``table``, as it was before.

    ``explicit_timestamp``: explicit_defaults_for_timestamp of the source's session, None when it is not known. Without
    it a server gives the first TIMESTAMP column that is not declared NULL the default CURRENT_TIMESTAMP (MySQL
    Reference Manual, "Server System Variables"), and each NULL in a column that becomes TIMESTAMP NOT NULL becomes the
    current time. MariaDB does the latter always (set_field_to_null_with_conversions() in its sql/field_conv.cc).
    """
    found: list[str] = []
    for column, part in _added_columns(statement, ddl):
        default = _default(part)
        if any(token.is_word(*_TIMES) for token in default):
            found.append(column)
        elif not default and not explicit_timestamp and not _is_declared_null(part):
            kind = declared_types(statement.text, statement.schema, statement.sql_mode or 0).get(column.lower())
            if kind is not None and kind.is_word("TIMESTAMP"):
                found.append(column)
    if is_mariadb or not explicit_timestamp:
        found += _nulls_to_times(statement, ddl, table, explicit_timestamp)
    return tuple(found)


def _nulls_to_times(statement: Statement, ddl: Ddl, table: Table, explicit_timestamp: bool | None) -> Iterator[str]:
    """The columns of ``table`` that may have NULLs, and that the statement makes TIMESTAMP NOT NULL."""
    if not isinstance(ddl, AlterTable):
        return
    nullable = {column.name.lower() for column in table.columns if column.nullable}
    changed = [
        clause
        for clause in ddl.clauses
        if clause.kind in (ClauseKind.CHANGE_COLUMN, ClauseKind.MODIFY_COLUMN)
        and any(column.lower() in nullable for column in clause.columns)
    ]
    if not changed:
        return
    found = tokens(statement.text, ddl.sql_mode)
    types = declared_types(statement.text, statement.schema, statement.sql_mode or 0)
    for clause in changed:
        name = clause.new_name or clause.columns[0]
        kind = types.get(name.lower())
        own = [token for token in found if clause.start <= token.start < clause.end]
        if kind is None or not kind.is_word("TIMESTAMP") or _is_declared_null(own):
            continue
        if not explicit_timestamp or any(token.is_word("NULL") for token in own):
            yield name


_STRICT, _ZERO_PARTS, _INVALID_DAYS = 3 << 21, 1 << 23, 1 << 25
"""Bits of sql_mode: both strict modes, NO_ZERO_IN_DATE, ALLOW_INVALID_DATES; MySQL and MariaDB have the same."""
_WITHOUT_COPY = LEAVES_ROWS | {
    ClauseKind.DROP_COLUMN,
    ClauseKind.RENAME_COLUMN,
    ClauseKind.DROP_FOREIGN_KEY,
    ClauseKind.RENAME_TABLE,
}
"""Clauses for which InnoDB does not copy the rows through the server (MySQL Reference Manual, "Online DDL
Operations"), unless the statement requires it or adds a generated column."""


@dataclass(frozen=True, slots=True)
class ReplacedDates:
    """Dates that a copy of a table replaces by 0000-00-00. ``days``: such as 2026-02-30; ``zero_parts``: 2026-00-10."""

    days: bool
    zero_parts: bool

    def __bool__(self) -> bool:
        return self.days or self.zero_parts


def replaced_dates(statement: Statement, ddl: Ddl) -> ReplacedDates:
    """The dates that a server may replace if it executes the statement by a copy of the table.

    It does so if the sql_mode does not permit them; in a strict mode the statement fails instead. MariaDB does not
    under each mode (Field_temporal::get_copy_func() in its sql/field_conv.cc), but a target of the other family does.
    """
    mode = statement.sql_mode or 0
    found = ReplacedDates(not mode & _INVALID_DAYS, bool(mode & _ZERO_PARTS))
    fails = mode & _STRICT and not (isinstance(ddl, AlterTable) and ddl.ignore)
    return found if found and not fails and _may_copy(statement, ddl) else ReplacedDates(False, False)


def _may_copy(statement: Statement, ddl: Ddl) -> bool:
    words = [token for token in tokens(statement.text, statement.sql_mode or 0) if token.is_word(*_OF_COPY)]
    if any(token.is_word("COPY") for token in words):
        return True
    return isinstance(ddl, AlterTable) and (
        bool(words) or any(clause.kind not in _WITHOUT_COPY for clause in ddl.clauses)
    )


_OF_COPY = keywords("AS COPY GENERATED")


def _is_declared_null(part: Sequence[Token]) -> bool:
    """Whether a column definition has NULL, and not NOT NULL."""
    return any(token.is_word("NULL") and not part[at - 1].is_word("NOT") for at, token in enumerate(part))


def _is_drawn(part: Sequence[Token]) -> bool:
    if any(token.is_word("AUTO_INCREMENT") for token in part[1:]):
        return True
    return any(each.is_word(*_DRAWN) or each.is_symbol("@") for each in _default(part))


def _default(part: Sequence[Token]) -> Sequence[Token]:
    """The value after DEFAULT in a column definition; empty when there is none."""
    return next((default_value(part, at) for at, token in enumerate(part) if token.is_word("DEFAULT")), ())


def _kept(text: str, clause: Clause, sql_mode: int) -> str:
    """The kept part of a clause, which may be several options without commas."""
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
