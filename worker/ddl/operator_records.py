"""Records at the target of an operator's statements: which statements have run for which statement of the source.

    operator_statement   one statement that was begun for a statement of the source; ``ran``: 1 when it is known to have
                         run

The record of a statement that has run is kept as long as the subtask's other records, for two reasons: several streams
of a subtask may reach the statement of the source, and the operator may replace the list of statements. Until the
statement of the source is passed, ``statement_begun`` also has a record, as for every statement that was begun
(worker/ddl/records.py).
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
    """One record. ``place``: of the source's statement. ``text``: the statement with the target's table names.
    ``occurrence``: number of equal statements before it in the operator's list. ``ran``: it is known to have run."""

    subject: str
    place: StatementPlace
    text: str
    occurrence: int
    ran: bool

    @staticmethod
    def new(statement: Statement, text: str, occurrence: int) -> OperatorStatement:
        """A record for the source's ``statement`` of a statement that has not been begun."""
        place = StatementPlace.of(statement)
        key = "\n".join((place.to_json(), str(occurrence), text))
        return OperatorStatement(hashlib.sha256(key.encode()).hexdigest()[:32], place, text, occurrence, ran=False)


def read(session: Session, who: Who, statement: Statement) -> list[OperatorStatement]:
    """All records for the source's ``statement``, also those from before the source's server was replaced."""
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
    """The record with this text and occurrence; a new one when there is none."""
    for one in read(session, who, statement):
        if (one.text, one.occurrence) == (text, occurrence):
            return one
    return OperatorStatement.new(statement, text, occurrence)


def write_begun(session: Session, who: Who, one: OperatorStatement, before: str) -> None:
    """Record, inside the caller's transaction, that the statement begins. ``before``: digest of the tables and schemas
    that it names, as they are before it runs."""
    _write(session, who, one, ran=False)
    records.write_begun(session, *who, one.subject, Begun(one.text, before))


def write_ran(session: Session, who: Who, one: OperatorStatement) -> None:
    """Record, in a transaction of its own, that the statement has run."""
    _write(session, who, one, ran=True)


def forget(session: Session, who: Who, one: OperatorStatement) -> None:
    """Remove, inside the caller's transaction, the record of a statement that has not run."""
    schema, task, source = who
    with session.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {quote_name(schema)}.`{NAME}` WHERE `task` = %s AND `source` = %s AND `subject` = %s",
            (task, source, one.subject),
        )
    records.forget_begun(session, *who, one.subject)


def pass_all(session: Session, who: Who, statement: Statement) -> None:
    """Update the records, inside the caller's transaction, when the source's ``statement`` is passed. Records of
    statements that have run are kept; records of statements that were begun and abandoned are removed."""
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
