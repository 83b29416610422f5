"""Records which source DDL statements were executed or begun, and each shard table's CREATE TABLE.

    statement_passed      the last statement that each stream has executed
    statement_begun       a statement that is running at the target: a digest of the tables before it
    table_creation        each shard table's CREATE TABLE, as the tracker's server printed it
    forgotten_structure   shard tables whose recorded structure an operator has deleted

A stream that restarts before a statement reads the statement again. ``statement_passed`` says whether it was executed
already: it is written in the transaction that records the structures after the statement. ``statement_begun`` and the
current tables say whether it has run (worker/ddl/execute/run_once.py). A row of ``forgotten_structure`` is deleted in
the transaction that records the structure again; until then the old structure remains, for readers of the records of
all tables. ``worker/target/records/subtask_record.py`` deletes the records for start-task --remove-meta.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter

from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.records import member_versions, subtask_rows

_FORMER_MARKS = ("+growing", "+renamed", "+partial", "+timed")
"""The version before has written these after ``at``, in this order from the end, for still earlier programs, which must
not continue with such a stream. An unknown mark is refused."""


def _without_mark(value: object) -> object:
    if not isinstance(value, str):
        return value
    for mark in _FORMER_MARKS:
        value = value.removesuffix(mark)
    return value


@dataclass(frozen=True, slots=True)
class StatementPlace:
    """Identifies a statement: the event at byte ``at`` of the event group that begins at ``position``."""

    position: SourcePosition
    at: Annotated[int, BeforeValidator(_without_mark)]

    @staticmethod
    def of(statement: Statement) -> StatementPlace:
        return StatementPlace(statement.position, statement.offset.byte - statement.group_start.byte)

    def is_exactly(self, statement: Statement) -> bool:
        """Whether it is this statement, also when it comes from another server or another relay log."""
        return self.covers(statement) and statement.offset.byte - statement.group_start.byte == self.at

    def covers(self, statement: Statement) -> bool:
        """Whether it is this statement, or one before it in the same group."""
        mine, other = self.position, statement.position
        if statement.offset.byte - statement.group_start.byte > self.at:
            return False
        if mine.same_server(other):
            return mine.file_order() == other.file_order()
        return bool(mine.gtid_set) and mine.gtid_set == other.gtid_set

    def is_before(self, position: SourcePosition) -> bool:
        """Whether the statement's group begins before ``position``, where a group begins or ends. True when that is not
        known: then a stream cannot reach the statement again after ``position``."""
        if self.position.same_server(position):
            return self.position.file_order() < position.file_order()
        return not self.position.gtid_set or self.position.gtid_set != position.gtid_set

    def to_json(self) -> str:
        return _PLACE.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> StatementPlace:
        """The place from the text of :meth:`to_json`."""
        return _PLACE.validate_json(text)

    def __str__(self) -> str:
        return str(self.position)


_PLACE = TypeAdapter(StatementPlace)


def read_passed(session: Session, who: SubtaskKey, stream: Stream) -> StatementPlace | None:
    """The last statement that the stream has executed; None: none yet."""
    found = subtask_rows.select(session, who, "statement_passed", "`place`", "AND `stream` = %s", (stream.name,))
    return _PLACE.validate_json(str(found[0][0])) if found else None


def write_passed(session: Session, who: SubtaskKey, stream: Stream, place: StatementPlace) -> None:
    """Inside the caller's transaction."""
    subtask_rows.replace(session, who, "statement_passed", [(stream.name, place.to_json())])


def delete_passed(session: Session, who: SubtaskKey, stream: Stream) -> None:
    """Inside the caller's transaction, when the stream ends."""
    subtask_rows.delete(session, who, "statement_passed", "AND `stream` = %s", (stream.name,))


@dataclass(frozen=True, slots=True)
class Begun:
    """``statement``: as sent to the target. ``before``: digest of the tables before it."""

    statement: str
    before: str


def read_begun(session: Session, who: SubtaskKey, subject: str) -> Begun | None:
    """The statement that was begun for ``subject`` and is not known to have finished; None: none."""
    columns = "`statement`, `before_digest`"
    found = subtask_rows.select(session, who, "statement_begun", columns, "AND `subject` = %s", (subject,))
    return Begun(str(found[0][0]), str(found[0][1])) if found else None


def read_begun_by(session: Session, schema: str, task: str, subject: str) -> dict[str, Begun]:
    """As :func:`read_begun`, of all sources of the task, by source."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `source`, `statement`, `before_digest` FROM {quote_name(schema)}.`statement_begun` "
            "WHERE `task` = %s AND `subject` = %s",
            (task, subject),
        )
        return {str(source): Begun(str(statement), str(before)) for source, statement, before in cursor.fetchall()}


def write_begun(session: Session, who: SubtaskKey, subject: str, begun: Begun) -> None:
    """In its own transaction, or inside the caller's."""
    subtask_rows.replace(session, who, "statement_begun", [(subject, begun.statement, begun.before)])


def move_begun(session: Session, who: SubtaskKey, subject: str, before: str, now: str) -> None:
    """Another statement, that of ``source`` and ``subject``, has changed the tables from ``before`` to ``now``: what
    was begun before it and has not run is begun after it. In its own transaction."""
    with session.cursor() as cursor:
        cursor.execute(
            f"UPDATE {quote_name(who.schema)}.`statement_begun` SET `before_digest` = %s "
            "WHERE `task` = %s AND `before_digest` = %s AND NOT (`source` = %s AND `subject` = %s)",
            (now, who.task, before, who.source, subject),
        )


def delete_begun(session: Session, who: SubtaskKey, subject: str) -> None:
    """Inside the caller's transaction, which records that the statement has finished, whole or in parts."""
    subjects = (subject, divided_subject(subject))
    subtask_rows.delete(session, who, "statement_begun", "AND `subject` IN (%s, %s)", subjects)


def divided_subject(subject: str) -> str:
    """The subject of the record of a statement of ``subject`` that runs in parts (divided_statements.py)."""
    return f"{subject}.parts"


def has_begun_statement(session: Session, who: SubtaskKey) -> bool:
    """Whether any statement of the subtask is recorded as begun."""
    return bool(subtask_rows.select(session, who, "statement_begun", "1", "LIMIT 1"))


def read_creations(
    session: Session, who: SubtaskKey, numbers: Collection[int] | None = None
) -> dict[int, CreateStatement]:
    """CREATE TABLE texts by the shard table's number, of ``numbers`` (None: of all); a subtask of an earlier version
    has none."""
    if numbers is not None and not numbers:
        return {}
    more, values = ("", ()) if numbers is None else ("AND `number` IN %s", (tuple(numbers),))
    found = subtask_rows.select(session, who, "table_creation", "`number`, `creation`, `collation`", more, values)
    return {int(number): CreateStatement(str(text), str(collation)).as_recorded for number, text, collation in found}


def read_creation(session: Session, who: SubtaskKey, number: int) -> CreateStatement | None:
    """The CREATE TABLE of one shard table; None: not recorded."""
    return read_creations(session, who, (number,)).get(number)


def write_creations(session: Session, who: SubtaskKey, creations: Mapping[int, CreateStatement]) -> None:
    """Inside the caller's transaction."""
    found = [(number, creation.text, creation.collation) for number, creation in creations.items()]
    subtask_rows.replace(session, who, "table_creation", found)
    member_versions.touch(session, who, creations)


def read_resets(session: Session, who: SubtaskKey) -> frozenset[int]:
    """Numbers of the shard tables whose structure was deleted and is to be read from the source again."""
    found = subtask_rows.select(session, who, "forgotten_structure", "`number`")
    return frozenset(int(number) for (number,) in found)


def write_reset(session: Session, who: SubtaskKey, number: int) -> None:
    """Inside the caller's transaction."""
    subtask_rows.replace(session, who, "forgotten_structure", [(number,)])


def clear_reset(session: Session, who: SubtaskKey, number: int) -> None:
    """Inside the caller's transaction, which records the structure again."""
    subtask_rows.delete(session, who, "forgotten_structure", "AND `number` = %s", (number,))
