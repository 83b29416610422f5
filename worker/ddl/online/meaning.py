"""The ALTER TABLE that the swap of a shadow table comes to. Pure.

Either what was said of the shadow table, said of the table itself; or, where that was not seen, the difference of the
structures, if it tells all: a column that goes while another comes may have been renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.connection import quote_name
from worker.ddl.clause import ClauseKind
from worker.ddl.definition import NO_DEFAULT, NULL, Definition, is_literal
from worker.ddl.described import Shape
from worker.ddl.online.records import Kept
from worker.ddl.optimistic import renamed_of, replaced_of
from worker.ddl.shape import Changing
from worker.ddl.statement import AlterTable, parse_ddl
from worker.ddl.tables import TableName

_NOT_SAID = frozenset({ClauseKind.RENAME_TABLE, ClauseKind.HOW})


@dataclass(frozen=True, slots=True)
class NotTold:
    """What a swap comes to is not to be told. ``why``: for people."""

    why: str


def said_of(table: TableName, kept: Sequence[Kept]) -> Kept | NotTold:
    """``kept``, of a shadow table, as one statement of ``table``. There must be some."""
    clauses: list[str] = []
    first = kept[0]
    for each in kept:
        ddl = parse_ddl(each.text, each.schema, each.sql_mode)
        if not isinstance(ddl, AlterTable):
            return NotTold("a statement of the shadow table was no ALTER TABLE")
        if (each.sql_mode, each.given.time_zone) != (first.sql_mode, first.given.time_zone):
            return NotTold("the shadow table was altered under more than one sql_mode or time_zone")
        if again := sorted(replaced_of(ddl)):
            # gh-ost gives such a column its default, pt-online-schema-change copies its former values.
            return NotTold(f"column {quote_name(again[0])} was dropped and added again")
        clauses += [each.text[part.start : part.end] for part in ddl.clauses if part.kind not in _NOT_SAID]
    return Kept(alter_table(table, clauses), table[0], first.sql_mode, first.given)


def alter_table(table: TableName, clauses: Sequence[str]) -> str:
    """The statement."""
    return f"ALTER TABLE {quote_name(table[0])}.{quote_name(table[1])} {', '.join(clauses)}"


def is_like(shape: Shape, other: Shape) -> bool:
    """Whether rows of both look alike and are held to the same rules, order of columns included."""
    return _ruled(shape) == _ruled(other)


def _ruled(shape: Shape) -> tuple[object, ...]:
    return (
        [(each.key, each.same) for each in shape.columns],
        sorted(each.same for each in shape.indexes),
        shape.primary_key,
        shape.checks,
    )


def difference(before: Shape, after: Shape, source: Shape, *, forced: bool) -> tuple[str, ...] | NotTold:
    """Clauses that make ``after`` of ``before``; () when there is none.

    ``before``, ``after``: in the words of one server, so that equal things are equal; ``source``: ``after`` in those of
    the source, which the clauses are given in. ``forced``: columns that go and come are just that.
    """
    gone = [each for each in before.columns if after.column(each.key) is None]
    new = [each for each in after.columns if before.column(each.key) is None]
    if gone and new and not forced:
        lost, came = quote_name(gone[0].name), quote_name(new[0].name)
        return NotTold(f"column {lost} is gone and {came} has come, which may be one renamed")
    for what, was, now in (
        ("primary key", before.primary_key, after.primary_key),
        ("checks", ", ".join(before.checks), ", ".join(after.checks)),
    ):
        if was != now:
            return NotTold(f"the table's {what} changed from {was or 'none'} to {now or 'none'}")
    clauses: list[str] = []
    for index in before.indexes:
        now = after.index(index.key)
        if now is None or now.same != index.same:
            clauses.append(f"DROP INDEX {quote_name(index.name)}")
    clauses += [f"DROP COLUMN {quote_name(each.name)}" for each in gone]
    staying = [each.key for each in before.columns if after.column(each.key) is not None]
    is_moved = staying != [each.key for each in after.columns if before.column(each.key) is not None]
    for at, each in enumerate(after.columns):
        was, said = before.column(each.key), source.column(each.key)
        if was is not None and was.same == each.same and not is_moved:
            continue
        if said is None:
            return NotTold(f"column {quote_name(each.name)} is not to be read")
        verb = "ADD" if was is None else "MODIFY"
        place = f"AFTER {quote_name(after.columns[at - 1].name)}" if at else "FIRST"
        clauses.append(f"{verb} COLUMN {quote_name(said.name)} {said.verbatim()} {place}")
    for index in after.indexes:
        was, own = before.index(index.key), source.index(index.key)
        if was is not None and was.same == index.same:
            continue
        if own is None:
            return NotTold(f"index {quote_name(index.name)} is not to be read")
        clauses.append(f"ADD {own.text}")
    return tuple(clauses)


def converted_by_tool(before: Shape, after: Shape, ddl: Changing) -> str:
    """A column whose values became TIMESTAMPs, or ceased to be: in the time zone of the tool's session (gh-ost's is
    UTC), not in the statement's; "" for none."""
    former = renamed_of(ddl)
    for column in after.columns:
        was = before.column(former.get(column.key, column.key))
        if was is not None and was.type.base != column.type.base and "timestamp" in (was.type.base, column.type.base):
            return column.name
    return ""


def drawn_by_tool(before: Shape, after: Shape, ddl: Changing) -> str:
    """A column that is new in ``after`` and whose values in the rows that are there depend on when and in which order
    the tool copied them; "" for none."""
    former = renamed_of(ddl)
    for column in after.columns:
        if before.column(former.get(column.key, column.key)) is None and _is_drawn(column):
            return column.name
    return ""


def _is_drawn(column: Definition) -> bool:
    if column.is_generated:
        return False
    if any(each.upper().startswith(("AUTO_INCREMENT", "ON UPDATE")) for each in column.rest):
        return True
    return column.default not in (NO_DEFAULT, NULL) and not is_literal(column.default)
