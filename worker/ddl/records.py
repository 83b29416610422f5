"""What the target remembers of the statements that a subtask's streams have come to.

    statement_passed   the last statement that each stream has passed, and with it the structures behind it
    statement_begun    a statement that is being run at the target: how the tables looked before it
    table_creation     each shard table's CREATE TABLE, as the tracker's server printed it

A stream that is asked for again at the place before a statement meets it once more. Whether it was passed is said
here, in the transaction that recorded the structures behind it; whether it has run, by ``statement_begun`` and the
tables as they are now (worker/ddl/execute.py). ``worker/meta.py`` deletes the records for start-task --remove-meta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from worker.connection import Session, quote_name
from worker.ddl.creation import Creation
from worker.position import SourcePosition
from worker.relay.model import Statement
from worker.replicate.stream import Stream

TABLES = (
    """CREATE TABLE IF NOT EXISTS {schema}.`statement_passed` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `stream` VARCHAR(16) NOT NULL,
        `place` LONGTEXT NOT NULL,
        PRIMARY KEY (`task`, `source`, `stream`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin""",
    """CREATE TABLE IF NOT EXISTS {schema}.`statement_begun` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `subject` VARCHAR(64) NOT NULL,
        `statement` LONGTEXT NOT NULL,
        `before_digest` VARCHAR(64) NOT NULL,
        PRIMARY KEY (`task`, `source`, `subject`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin""",
    """CREATE TABLE IF NOT EXISTS {schema}.`table_creation` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `number` INT NOT NULL,
        `creation` LONGTEXT NOT NULL,
        `collation` VARCHAR(64) NOT NULL,
        PRIMARY KEY (`task`, `source`, `number`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin""",
)
OWNED = ("statement_passed", "statement_begun", "table_creation")


@dataclass(frozen=True, slots=True)
class StatementPlace:
    """Which statement: of the event group that begins at ``position``, the event at byte ``at`` of the group."""

    position: SourcePosition
    at: int

    @staticmethod
    def of(statement: Statement) -> StatementPlace:
        return StatementPlace(statement.position, statement.offset.byte - statement.group_start.byte)

    def is_exactly(self, statement: Statement) -> bool:
        """Whether it is this statement, also when another server or another relay log tells of it."""
        return self.covers(statement) and statement.offset.byte - statement.group_start.byte == self.at

    def covers(self, statement: Statement) -> bool:
        """Whether it is this statement, or one before it in the same group."""
        mine, other = self.position, statement.position
        if statement.offset.byte - statement.group_start.byte > self.at:
            return False
        if mine.same_server(other):
            return mine.file_order() == other.file_order()
        return bool(mine.gtid_set) and mine.gtid_set == other.gtid_set

    def lies_before(self, position: SourcePosition) -> bool:
        """Whether the statement's group begins before ``position``, where a group begins or ends; True when that is
        not known: it is then no statement that a stream could meet again there."""
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


def read_passed(session: Session, schema: str, task: str, source: str, stream: Stream) -> StatementPlace | None:
    """The statement that the stream has passed last; None: none yet."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `place` FROM {quote_name(schema)}.`statement_passed` "
            "WHERE `task` = %s AND `source` = %s AND `stream` = %s",
            (task, source, stream.name),
        )
        row = cursor.fetchone()
    return None if row is None else _PLACE.validate_json(str(row[0]))


def write_passed(session: Session, schema: str, task: str, source: str, stream: Stream, place: StatementPlace) -> None:
    """Inside the caller's transaction."""
    with session.cursor() as cursor:
        cursor.execute(
            f"REPLACE INTO {quote_name(schema)}.`statement_passed` VALUES (%s, %s, %s, %s)",
            (task, source, stream.name, place.to_json()),
        )


def forget_passed(session: Session, schema: str, task: str, source: str, stream: Stream) -> None:
    """Inside the caller's transaction: the stream is no more."""
    with session.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {quote_name(schema)}.`statement_passed` "
            "WHERE `task` = %s AND `source` = %s AND `stream` = %s",
            (task, source, stream.name),
        )


@dataclass(frozen=True, slots=True)
class Begun:
    """``statement``: as it was sent to the target; ``before``: digest of the tables as they were."""

    statement: str
    before: str


def read_begun(session: Session, schema: str, task: str, source: str, subject: str) -> Begun | None:
    """The statement that was begun for ``subject`` and is not known to be done; None: none."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `statement`, `before_digest` FROM {quote_name(schema)}.`statement_begun` "
            "WHERE `task` = %s AND `source` = %s AND `subject` = %s",
            (task, source, subject),
        )
        row = cursor.fetchone()
    return None if row is None else Begun(str(row[0]), str(row[1]))


def write_begun(session: Session, schema: str, task: str, source: str, subject: str, begun: Begun) -> None:
    """By a transaction of its own, or inside the caller's."""
    with session.cursor() as cursor:
        cursor.execute(
            f"REPLACE INTO {quote_name(schema)}.`statement_begun` VALUES (%s, %s, %s, %s, %s)",
            (task, source, subject, begun.statement, begun.before),
        )


def forget_begun(session: Session, schema: str, task: str, source: str, subject: str) -> None:
    """Inside the caller's transaction, which records that it is done."""
    with session.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {quote_name(schema)}.`statement_begun` "
            "WHERE `task` = %s AND `source` = %s AND `subject` = %s",
            (task, source, subject),
        )


def is_begun(session: Session, schema: str, task: str, source: str) -> bool:
    """Whether any statement is."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT 1 FROM {quote_name(schema)}.`statement_begun` WHERE `task` = %s AND `source` = %s LIMIT 1",
            (task, source),
        )
        return cursor.fetchone() is not None


def read_creations(session: Session, schema: str, task: str, source: str) -> dict[int, Creation]:
    """By the shard table's number; a subtask of an earlier version has none."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `number`, `creation`, `collation` FROM {quote_name(schema)}.`table_creation` "
            "WHERE `task` = %s AND `source` = %s",
            (task, source),
        )
        return {int(number): Creation(str(text), str(collation)) for number, text, collation in cursor.fetchall()}


def read_creation(session: Session, schema: str, task: str, source: str, number: int) -> Creation | None:
    """Of one shard table."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `creation`, `collation` FROM {quote_name(schema)}.`table_creation` "
            "WHERE `task` = %s AND `source` = %s AND `number` = %s",
            (task, source, number),
        )
        row = cursor.fetchone()
    return None if row is None else Creation(str(row[0]), str(row[1]))


def write_creations(session: Session, schema: str, task: str, source: str, creations: Mapping[int, Creation]) -> None:
    """Inside the caller's transaction."""
    with session.cursor() as cursor:
        for number, creation in creations.items():
            cursor.execute(
                f"REPLACE INTO {quote_name(schema)}.`table_creation` VALUES (%s, %s, %s, %s, %s)",
                (task, source, number, creation.text, creation.collation),
            )
