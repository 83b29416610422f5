"""Derives the ALTER TABLE that equals the swap of a shadow table. Pure.

It is derived either from the shadow table's own ALTER TABLEs, or, where these were not read, from the difference of the
structures, if that is unambiguous: a column that disappears while another appears may have been renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.ddl.execute.optimistic import renamed_of, replaced_of
from shardmerge.worker.ddl.sql.column_definition import NO_DEFAULT, NULL, ColumnDefinition, is_literal
from shardmerge.worker.ddl.sql.statement import AlterTable, parse_ddl
from shardmerge.worker.ddl.sql.table_definition import TableDefinition
from shardmerge.worker.ddl.sql.target_statement import Changing
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records.shadow_tables import ShadowAlter

_NOT_SAID = frozenset({ClauseKind.RENAME_TABLE, ClauseKind.HOW})


@dataclass(frozen=True, slots=True)
class CannotDerive:
    """The ALTER TABLE that equals this swap cannot be derived. ``why``: for people."""

    why: str


def alter_from_shadow(table: TableName, kept: Sequence[ShadowAlter]) -> ShadowAlter | CannotDerive:
    """The ALTER TABLEs ``kept`` of a shadow table, at least one, as one ALTER TABLE of ``table``."""
    clauses: list[str] = []
    first = kept[0]
    for each in kept:
        ddl = parse_ddl(each.text, each.schema, each.sql_mode)
        if not isinstance(ddl, AlterTable):
            return CannotDerive("a statement of the shadow table was no ALTER TABLE")
        if (each.sql_mode, replace(each.session, moment="")) != (first.sql_mode, replace(first.session, moment="")):
            return CannotDerive("the shadow table was altered under more than one sql_mode, time_zone or other setting")
        if again := sorted(replaced_of(ddl)):
            # gh-ost gives such a column its default, pt-online-schema-change copies its former values.
            return CannotDerive(f"column {quote_name(again[0])} was dropped and added again")
        clauses += [each.text[part.start : part.end] for part in ddl.clauses if part.kind not in _NOT_SAID]
    return ShadowAlter(alter_table(table, clauses), table[0], first.sql_mode, first.session)


def alter_table(table: TableName, clauses: Sequence[str]) -> str:
    """The ALTER TABLE statement with these clauses."""
    return f"ALTER TABLE {quote_name(table[0])}.{quote_name(table[1])} {', '.join(clauses)}"


def same_structure(shape: TableDefinition, other: TableDefinition) -> bool:
    """Whether both have the same columns in the same order, and the same indexes, keys and checks."""
    return _ruled(shape) == _ruled(other)


def _ruled(shape: TableDefinition) -> tuple[object, ...]:
    return (
        [(each.key, each.same) for each in shape.columns],
        sorted(each.same for each in shape.indexes),
        shape.primary_key,
        shape.checks,
    )


def difference(
    before: TableDefinition, after: TableDefinition, source: TableDefinition, *, forced: bool
) -> tuple[str, ...] | CannotDerive:
    """Clauses that make ``after`` of ``before``; () when there is none.

    ``before``, ``after``: in one server's notation, so that equal definitions have equal texts. ``source``: ``after``
    in the source's notation, which the clauses use. ``forced``: treat columns that disappear and appear as dropped and
    added, not renamed.
    """
    gone = [each for each in before.columns if after.column(each.key) is None]
    new = [each for each in after.columns if before.column(each.key) is None]
    if gone and new and not forced:
        lost, came = quote_name(gone[0].name), quote_name(new[0].name)
        return CannotDerive(f"column {lost} disappeared and {came} appeared: it may have been renamed")
    for what, was, now in (
        ("primary key", before.primary_key, after.primary_key),
        ("checks", ", ".join(before.checks), ", ".join(after.checks)),
    ):
        if was != now:
            return CannotDerive(f"the table's {what} changed from {was or 'none'} to {now or 'none'}")
    clauses: list[str] = []
    for index in before.indexes:
        now = after.index(index.key)
        if now is None or now.same != index.same:
            clauses.append(f"DROP INDEX {quote_name(index.name)}")
    clauses += [f"DROP COLUMN {quote_name(each.name)}" for each in gone]
    staying = [each.key for each in before.columns if after.column(each.key) is not None]
    is_moved = staying != [each.key for each in after.columns if before.column(each.key) is not None]
    for at, each in enumerate(after.columns):
        was, printed = before.column(each.key), source.column(each.key)
        if was is not None and was.same == each.same and not is_moved:
            continue
        if printed is None:
            return CannotDerive(f"column {quote_name(each.name)} cannot be read")
        verb = "ADD" if was is None else "MODIFY"
        place = f"AFTER {quote_name(after.columns[at - 1].name)}" if at else "FIRST"
        clauses.append(f"{verb} COLUMN {quote_name(printed.name)} {printed.verbatim()} {place}")
    for index in after.indexes:
        was, own = before.index(index.key), source.index(index.key)
        if was is not None and was.same == index.same:
            continue
        if own is None:
            return CannotDerive(f"index {quote_name(index.name)} cannot be read")
        clauses.append(f"ADD {own.text}")
    return tuple(clauses)


def tool_converted_column(before: TableDefinition, after: TableDefinition, ddl: Changing) -> str:
    """A column whose values were converted to or from TIMESTAMP: in the time zone of the tool's session (gh-ost: UTC),
    not in the statement's; "" for none."""
    former = renamed_of(ddl)
    for column in after.columns:
        was = before.column(former.get(column.key, column.key))
        if was is not None and was.type.base != column.type.base and "timestamp" in (was.type.base, column.type.base):
            return column.name
    return ""


def tool_generated_column(before: TableDefinition, after: TableDefinition, ddl: Changing) -> str:
    """A new column in ``after`` whose values in existing rows depend on when and in which order the tool copied them;
    "" for none."""
    former = renamed_of(ddl)
    for column in after.columns:
        if before.column(former.get(column.key, column.key)) is None and _is_drawn(column):
            return column.name
    return ""


def _is_drawn(column: ColumnDefinition) -> bool:
    if column.is_generated:
        return False
    if any(each.upper().startswith(("AUTO_INCREMENT", "ON UPDATE")) for each in column.rest):
        return True
    return column.default not in (NO_DEFAULT, NULL) and not is_literal(column.default)
