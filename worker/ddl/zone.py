"""The time zone of a source's statement whose session had ``time_zone = SYSTEM``, as an offset.

The target does not know the source's zone, only an offset, and one statement runs under one. Where a zone has summer
time, each moment has its own: that of a TIMESTAMP's default is looked up by the literal, at the source. What would need
two offsets is refused, for a value would be another one at the target (MySQL Reference Manual, "MySQL Server Time Zone
Support").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from proto.lexer import Kind, tokens
from worker.connection import Session, execute, quote_text, rows
from worker.ddl.clause import ClauseKind
from worker.ddl.dialect import declared_types
from worker.ddl.optimistic import renamed_of
from worker.ddl.shape import Changing
from worker.ddl.statement import AlterTable, Ddl
from worker.ddl.words import keywords
from worker.relay.model import Statement
from worker.table import ValueKind

_MOMENT = re.compile(r"'?(\d{1,4}\D\d{1,2}\D\d{1,2}(\D.*)?|\d{8}|\d{14}(\.\d*)?)'?", re.DOTALL)
_NOW = keywords("CURDATE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURTIME LOCALTIME LOCALTIMESTAMP NOW SYSDATE")
_YEARS = range(1971, 2038)
"""Those of TIMESTAMP."""


@dataclass(frozen=True, slots=True)
class Moments:
    """What of a statement depends on the zone. ``literals``: of moments, as SQL; ``now``: whether the present time is
    used; ``converted``: a column whose values the statement converts from or to TIMESTAMP, "" for none."""

    literals: tuple[str, ...] = ()
    now: bool = False
    converted: str = ""


def moments_of(statement: Statement, ddl: Ddl, kinds: Mapping[str, ValueKind]) -> Moments:
    """``kinds``: of the table's columns before the statement, by their names in lower case. Pure."""
    mode = statement.sql_mode or 0
    declared = declared_types(statement.text, statement.schema, mode)
    stamps = {name for name, token in declared.items() if token.is_word("TIMESTAMP")}
    sets_default = isinstance(ddl, AlterTable) and any(each.kind is ClauseKind.SET_DEFAULT for each in ddl.clauses)
    if not stamps and not sets_default and ValueKind.TIMESTAMP not in kinds.values():
        return Moments()
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
    return Moments(tuple(dict.fromkeys(literals)) if is_read else (), now and is_read, converted)


@dataclass(frozen=True, slots=True)
class Varies:
    """No one offset does. ``why``: for people."""

    why: str


def offset_of(session: Session, second: int, moments: Moments) -> str | Varies:
    """What is right for all of ``moments``, as "+02:00"; ``second``: when the statement was given, in Unix time;
    ``session``: at the source. Raises ``pymysql.MySQLError``."""
    execute(session, f"SET SESSION time_zone = 'SYSTEM', timestamp = {second}")
    [(present,)] = rows(session, "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())")
    offsets = {literal: offset for literal in moments.literals if (offset := _at(session, literal)) is not None}
    if moments.now:
        offsets["the present time"] = int(present)
    if len(set(offsets.values())) > 1:
        shown = ", ".join(f"{_shown(offset)} at {literal}" for literal, offset in offsets.items())
        return Varies(f"its offset is {shown}")
    if moments.converted and len(found := _all(session)) > 1:
        return Varies(
            f"values of column `{moments.converted}` are converted, at offsets from {_shown(min(found))} to "
            f"{_shown(max(found))}"
        )
    return _shown(next(iter(offsets.values()), int(present)))


def _at(session: Session, literal: str) -> int | None:
    """The zone's offset at a moment of its own clock, in seconds; None for what is no moment of a TIMESTAMP."""
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
