"""Records how far a statement is that runs at the target in parts (TiDB does not combine all actions in one).

It is a row of ``statement_begun`` next to that of a whole statement: an earlier version, which knows no parts, does not
regard the statement as begun or as run because some parts have run. The parts are recorded before the first one runs,
so every version continues with the same ones. ``ddl_progress.delete_begun`` deletes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from shardmerge.worker.core.mysql.connection import Session, quote_name, rows, text_of
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.records import ddl_progress
from shardmerge.worker.target.records.ddl_progress import Begun, divided_subject


@dataclass(frozen=True, slots=True)
class DividedStatement:
    """``statement``: the whole. ``parts``: the statements that run instead, in this order. ``ran``: how many of them
    have run. ``place``: of the source's statement, as JSON, "" where the subject
    identifies the run. ``computed``: it was computed from the tables' definitions, and is computed again after a
    failure."""

    statement: str
    parts: tuple[str, ...]
    ran: int = 0
    place: str = ""
    computed: bool = False


@dataclass(frozen=True, slots=True)
class StatementProgress:
    """``before``: digest of the tables before the next part, which may have been sent; "": it has not been sent."""

    divided: DividedStatement
    before: str = ""

    @property
    def is_complete(self) -> bool:
        return self.divided.ran == len(self.divided.parts)

    def has_begun_to_run(self, digest: Callable[[], str]) -> bool:
        """Whether any part has run. ``digest``: of the tables now; no job of the target is changing them."""
        return self.divided.ran > 0 or self.is_next_run(digest)

    def is_next_run(self, digest: Callable[[], str]) -> bool:
        """Whether the next part has run, and only that is not recorded."""
        return bool(self.before) and not self.is_complete and digest() != self.before

    def next(self, now: str) -> StatementProgress:
        """After one more part. ``now``: digest of the tables after it."""
        return StatementProgress(replace(self.divided, ran=self.divided.ran + 1), now)


_DIVIDED = TypeAdapter(DividedStatement)


def read(session: Session, who: SubtaskKey, subject: str) -> StatementProgress | None:
    """The statement of ``subject`` that runs in parts; None: there is none."""
    begun = ddl_progress.read_begun(session, who, divided_subject(subject))
    return None if begun is None else _progress(begun)


def read_by(session: Session, schema: str, task: str, subject: str) -> dict[str, StatementProgress]:
    """As :func:`read`, of all sources of the task, by source."""
    found = ddl_progress.read_begun_by(session, schema, task, divided_subject(subject))
    return {source: _progress(begun) for source, begun in found.items()}


def write(session: Session, who: SubtaskKey, subject: str, progress: StatementProgress) -> None:
    """In its own transaction, or inside the caller's."""
    text = _DIVIDED.dump_json(progress.divided).decode()
    ddl_progress.write_begun(session, who, divided_subject(subject), Begun(text, progress.before))


def is_begun(session: Session, who: SubtaskKey, subject: str) -> bool:
    """Whether a statement of ``subject`` was begun, whole or in parts, and is not known to have finished."""
    return who.source in begun_sources(session, who.schema, who.task, subject)


def begun_sources(session: Session, schema: str, task: str, subject: str) -> frozenset[str]:
    """The sources that have begun a statement of ``subject``, whole or in parts."""
    found = rows(
        session,
        f"SELECT DISTINCT `source` FROM {quote_name(schema)}.`statement_begun` "
        "WHERE `task` = %s AND `subject` IN (%s, %s)",
        (task, subject, divided_subject(subject)),
    )
    return frozenset(text_of(source) for (source,) in found)


def _progress(begun: Begun) -> StatementProgress:
    return StatementProgress(_DIVIDED.validate_json(begun.statement), begun.before)
