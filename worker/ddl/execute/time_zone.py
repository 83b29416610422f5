"""Computes the time zone of a source's statement whose session had ``time_zone = SYSTEM``, as an offset.

The target does not know the source's zone, only an offset, and a statement runs under one offset. In a zone with summer
time, the offset depends on the time: for a TIMESTAMP's default it is looked up at the source by the literal. A
statement that would need two offsets is refused, because a value would differ at the target (MySQL Reference Manual,
"MySQL Server Time Zone Support").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.proto.sql_lexer import Kind, tokens
from shardmerge.worker.core.mysql.connection import Session, execute, quote_text, rows
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.token_reader import keywords
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.ddl.execute.optimistic import renamed_of
from shardmerge.worker.ddl.sql.dialect import declared_types
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl
from shardmerge.worker.ddl.sql.target_statement import Changing
from shardmerge.worker.relay.model import Statement

_MOMENT = re.compile(r"'?(\d{1,4}\D\d{1,2}\D\d{1,2}(\D.*)?|\d{8}|\d{14}(\.\d*)?)'?", re.DOTALL)
_NOW = keywords("CURDATE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURTIME LOCALTIME LOCALTIMESTAMP NOW SYSDATE")
_YEARS = range(1971, 2038)
"""The years of TIMESTAMP."""


@dataclass(frozen=True, slots=True)
class TimeLiterals:
    """The parts of a statement that depend on the zone. ``literals``: date and time literals, as SQL. ``now``: whether
    it uses the current time. ``converted``: a column whose values it converts from or to TIMESTAMP, "" for none."""

    literals: tuple[str, ...] = ()
    now: bool = False
    converted: str = ""


def time_literals(statement: Statement, ddl: Ddl, kinds: Mapping[str, ValueKind]) -> TimeLiterals:
    """``kinds``: value kinds of the table's columns before the statement, by lower-case name. Pure."""
    mode = statement.sql_mode or 0
    declared = declared_types(statement.text, statement.schema, mode)
    stamps = {name for name, token in declared.items() if token.is_word("TIMESTAMP")}
    sets_default = isinstance(ddl, AlterTable) and any(each.kind is ClauseKind.SET_DEFAULT for each in ddl.clauses)
    if not stamps and not sets_default and ValueKind.TIMESTAMP not in kinds.values():
        return TimeLiterals()
    found = tokens(statement.text, mode)
    former = renamed_of(ddl) if isinstance(ddl, Changing) else {}
    converted = ""
    for name in declared:
        was = kinds.get(former.get(name, name))
        if was is not None and (was is ValueKind.TIMESTAMP) != (name in stamps):
            converted = name
    literals = [each.text for each in found if each.kind is not Kind.NAME and _MOMENT.fullmatch(each.text)]
    is_read = bool(stamps) or sets_default
    now = any(each.is_word(*_NOW) for each in found)
    return TimeLiterals(tuple(dict.fromkeys(literals)) if is_read else (), now and is_read, converted)


@dataclass(frozen=True, slots=True)
class OffsetVaries:
    """No single offset is right. ``why``: for people."""

    why: str


def offset_of(session: Session, second: int, moments: TimeLiterals) -> str | OffsetVaries:
    """The offset that is right for all of ``moments``, such as "+02:00". ``second``: when the statement ran, in Unix
    time. ``session``: at the source. Raises ``pymysql.MySQLError``."""
    execute(session, f"SET SESSION time_zone = 'SYSTEM', timestamp = {second}")
    [(present,)] = rows(session, "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())")
    offsets = {literal: offset for literal in moments.literals if (offset := _at(session, literal)) is not None}
    if moments.now:
        offsets["the present time"] = int(present)
    ran = f"it ran at {_shown(int(present))}"
    if len(set(offsets.values())) > 1:
        shown = ", ".join(f"{_shown(offset)} at {literal}" for literal, offset in offsets.items())
        return OffsetVaries(f"{ran}; its offset is {shown}")
    if moments.converted and len(found := _all(session)) > 1:
        return OffsetVaries(
            f"{ran}; values of column `{moments.converted}` are converted, at offsets from {_shown(min(found))} to "
            f"{_shown(max(found))}"
        )
    return _shown(next(iter(offsets.values()), int(present)))


def _at(session: Session, literal: str) -> int | None:
    """The zone's offset at a local time, in seconds; None for a literal that is no valid TIMESTAMP."""
    text = literal if literal.startswith("'") else quote_text(literal)
    [(offset,)] = rows(
        session,
        f"SELECT TIMESTAMPDIFF(SECOND, '1970-01-01 00:00:00', {text}) - FLOOR(NULLIF(UNIX_TIMESTAMP({text}), 0))",
    )
    return None if offset is None else int(offset)


def _all(session: Session) -> set[int]:
    """The zone's offsets in winter and in summer of all years."""
    days = " UNION ALL ".join(f"SELECT '{year}-{day} 12:00:00' AS d" for year in _YEARS for day in ("01-01", "07-01"))
    found = rows(
        session,
        "SELECT DISTINCT TIMESTAMPDIFF(SECOND, '1970-01-01 00:00:00', d) - FLOOR(UNIX_TIMESTAMP(d)) "
        f"FROM ({days}) AS days",
    )
    return {int(offset) for (offset,) in found}


def _shown(seconds: int) -> str:
    minutes = round(seconds / 60)
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"
