"""Records which of an operator's statements have run, and for which statement of the source.

    operator_statement   one statement that was begun for a statement of the source; ``ran``: 1 when it is known to have
                         run

The record of a statement that has run is kept as long as the subtask's other records, for two reasons: several streams
of a subtask may reach the statement of the source, and the operator may replace the list of statements. Until the
statement of the source is executed, ``statement_begun`` also has a record, as for every statement that was begun
(worker/target/records/ddl_progress.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import Session, text_of
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.records import ddl_progress, divided_statements, subtask_rows
from shardmerge.worker.target.records.ddl_progress import Begun, StatementPlace
from shardmerge.worker.target.records.divided_statements import StatementProgress

NAME = "operator_statement"


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


def read(session: Session, who: SubtaskKey, statement: Statement) -> list[OperatorStatement]:
    """All records for the source's ``statement``, also those from before the source's server was replaced."""
    found = subtask_rows.select(session, who, NAME, "`subject`, `place`, `statement`, `occurrence`, `ran`")
    every = (
        OperatorStatement(text_of(a), StatementPlace.from_json(text_of(b)), text_of(c), int(d), bool(int(e)))
        for a, b, c, d, e in found
    )
    return [one for one in every if one.place.is_exactly(statement)]


def find(session: Session, who: SubtaskKey, statement: Statement, text: str, occurrence: int) -> OperatorStatement:
    """The record with this text and occurrence; a new one when there is none."""
    for one in read(session, who, statement):
        if (one.text, one.occurrence) == (text, occurrence):
            return one
    return OperatorStatement.new(statement, text, occurrence)


def write_begun(session: Session, who: SubtaskKey, one: OperatorStatement, before: str) -> None:
    """Record, inside the caller's transaction, that the statement begins. ``before``: digest of the tables and schemas
    that it names, as they are before it runs."""
    _write(session, who, one, ran=False)
    ddl_progress.write_begun(session, who, one.subject, Begun(one.text, before))


def write_divided(session: Session, who: SubtaskKey, one: OperatorStatement, progress: StatementProgress) -> None:
    """As :func:`write_begun`, for a statement that the target runs in parts."""
    _write(session, who, one, ran=False)
    ddl_progress.delete_begun(session, who, one.subject)
    divided_statements.write(session, who, one.subject, progress)


def write_ran(session: Session, who: SubtaskKey, one: OperatorStatement) -> None:
    """Record, in a transaction of its own, that the statement has run."""
    _write(session, who, one, ran=True)


def delete(session: Session, who: SubtaskKey, one: OperatorStatement) -> None:
    """Remove, inside the caller's transaction, the record of a statement that has not run."""
    subtask_rows.delete(session, who, NAME, "AND `subject` = %s", (one.subject,))
    ddl_progress.delete_begun(session, who, one.subject)


def finish_all(session: Session, who: SubtaskKey, statement: Statement) -> None:
    """Update the records, inside the caller's transaction, when the source's ``statement`` is executed. Records of
    statements that have run are kept; records of statements that were begun and abandoned are removed."""
    for one in read(session, who, statement):
        if one.ran:
            ddl_progress.delete_begun(session, who, one.subject)
        else:
            delete(session, who, one)


def _write(session: Session, who: SubtaskKey, one: OperatorStatement, *, ran: bool) -> None:
    row = (one.subject, one.place.to_json(), one.text, one.occurrence, int(ran))
    subtask_rows.replace(session, who, NAME, [row])
