"""What the target remembers of an operator's statements: which have run there for which statement of the source.

    operator_statement   one that was begun for a statement of the source; ``ran``: 1 when it is known to have run

The record of one that has run stays as long as the subtask's other records: several streams of a subtask may come to
the statement of the source, and the operator may say something else of it. While the statement of the source is not
passed, ``statement_begun`` has it too, as it has every statement that was begun (worker/ddl/records.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from worker.connection import Session, quote_name, rows, text_of
from worker.ddl import records
from worker.ddl.execute import Who
from worker.ddl.records import Begun, StatementPlace
from worker.relay.model import Statement

NAME = "operator_statement"
TABLE = f"""CREATE TABLE IF NOT EXISTS {{schema}}.`{NAME}` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `subject` VARCHAR(64) NOT NULL,
        `place` LONGTEXT NOT NULL,
        `statement` LONGTEXT NOT NULL,
        `occurrence` INT NOT NULL,
        `ran` TINYINT NOT NULL,
        PRIMARY KEY (`task`, `source`, `subject`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""


@dataclass(frozen=True, slots=True)
class OperatorStatement:
    """``place``: of the source's statement. ``text``: as it is for the target's tables. ``occurrence``: how many equal
    ones come before it in what the operator said. ``ran``: it is known to have run."""

    subject: str
    place: StatementPlace
    text: str
    occurrence: int
    ran: bool

    @staticmethod
    def new(statement: Statement, text: str, occurrence: int) -> OperatorStatement:
        """For the source's ``statement``; nothing is known of it."""
        place = StatementPlace.of(statement)
        key = "\n".join((place.to_json(), str(occurrence), text))
        return OperatorStatement(hashlib.sha256(key.encode()).hexdigest()[:32], place, text, occurrence, ran=False)


def read(session: Session, who: Who, statement: Statement) -> list[OperatorStatement]:
    """All that were begun for the source's ``statement``, also by a server that was replaced since."""
    schema, task, source = who
    found = rows(
        session,
        f"SELECT `subject`, `place`, `statement`, `occurrence`, `ran` FROM {quote_name(schema)}.`{NAME}` "
        "WHERE `task` = %s AND `source` = %s",
        (task, source),
    )
    every = (
        OperatorStatement(text_of(a), StatementPlace.from_json(text_of(b)), text_of(c), int(d), bool(int(e)))
        for a, b, c, d, e in found
    )
    return [one for one in every if one.place.is_exactly(statement)]


def find(session: Session, who: Who, statement: Statement, text: str, occurrence: int) -> OperatorStatement:
    """The one with this text, as it is recorded; a new one when it is not."""
    for one in read(session, who, statement):
        if (one.text, one.occurrence) == (text, occurrence):
            return one
    return OperatorStatement.new(statement, text, occurrence)


def write_begun(session: Session, who: Who, one: OperatorStatement, before: str) -> None:
    """Inside the caller's transaction. ``before``: digest of what it is about, before it."""
    _write(session, who, one, ran=False)
    records.write_begun(session, *who, one.subject, Begun(one.text, before))


def write_ran(session: Session, who: Who, one: OperatorStatement) -> None:
    """By a transaction of its own: it has run."""
    _write(session, who, one, ran=True)


def forget(session: Session, who: Who, one: OperatorStatement) -> None:
    """Inside the caller's transaction: it has not run."""
    schema, task, source = who
    with session.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {quote_name(schema)}.`{NAME}` WHERE `task` = %s AND `source` = %s AND `subject` = %s",
            (task, source, one.subject),
        )
    records.forget_begun(session, *who, one.subject)


def pass_all(session: Session, who: Who, statement: Statement) -> None:
    """Inside the caller's transaction: the source's ``statement`` is passed. What has run for it stays recorded, what
    was begun and given up since does not."""
    for one in read(session, who, statement):
        if one.ran:
            records.forget_begun(session, *who, one.subject)
        else:
            forget(session, who, one)


def _write(session: Session, who: Who, one: OperatorStatement, *, ran: bool) -> None:
    schema, task, source = who
    with session.cursor() as cursor:
        cursor.execute(
            f"REPLACE INTO {quote_name(schema)}.`{NAME}` VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (task, source, one.subject, one.place.to_json(), one.text, one.occurrence, int(ran)),
        )
