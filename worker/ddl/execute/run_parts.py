"""Runs the parts of a statement that the target does not run as a whole, each exactly once and in their order (I6).

As for a whole statement (run_once.py), the tables' definitions before a part show whether it has run. One record has
all parts and how many of them have run; the definitions after a part are those before the next one. So after a kill at
any moment the remaining parts run. Between two parts no lane writes rows that need the result: the lanes of the tables
wait for the whole statement, and those of other shard tables (``shard-mode: optimistic``) write as before it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pymysql

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session, dialect_of
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.ddl.split.pieces import statements_at
from shardmerge.worker.target.records import ddl_progress, divided_statements
from shardmerge.worker.target.records.divided_statements import DividedStatement, StatementProgress

log = get_logger()


def divided_at(session: Session, text: str, sql_mode: int) -> DividedStatement | None:
    """``text`` in the parts that the target runs; None: it runs the whole. Raises ``pymysql.MySQLError``."""
    parts = statements_at(dialect_of(session), text, sql_mode)
    return DividedStatement(text, parts) if len(parts) > 1 else None


@dataclass(frozen=True, slots=True)
class PartsRun:
    """``who``, ``subject``: of the record. ``digest``: of the tables now. ``send``: runs one part at the target; False:
    stopped before. ``has_ended``: whether no job of the target is changing the tables."""

    session: Session
    who: SubtaskKey
    subject: str
    digest: Callable[[], str]
    send: Callable[[str], bool]
    has_ended: Callable[[], bool]
    on_run: Callable[[str, str], None] = lambda before, now: None
    """Called after a part with the digests before and after it."""

    def run(self, progress: StatementProgress) -> bool:
        """Run the parts that have not run; False: stopped before. Raises DDL_REFUSED, DDL_PART_REFUSED and what
        ``send`` raises."""
        while not progress.is_complete:
            if progress.is_next_run(self.digest):
                progress = progress.next(self.digest())
                self._write(progress)
                continue
            if not progress.before:
                progress = replace(progress, before=self.digest())
                self._write(progress)
            failpoints.hit("ddl.begun")
            if not self._send(progress):
                return False
            failpoints.hit("ddl.run")
            before, progress = progress.before, progress.next(self.digest())
            self.on_run(before, progress.before)
            self._write(progress)
            failpoints.hit("ddl.part_recorded")
        return True

    def _send(self, progress: StatementProgress) -> bool:
        divided = progress.divided
        try:
            return self.send(divided.parts[divided.ran])
        except (ShardmergeError, pymysql.MySQLError) as error:
            with suppress(pymysql.MySQLError):  # the connection is lost: the state stays unknown
                if self.has_ended() and self.digest() == progress.before:
                    self._record_refusal(progress)
            if isinstance(error, ShardmergeError) and error.spec is errors.ddl.DDL_REFUSED and divided.ran:
                raise part_refusal(error, divided) from error
            raise

    def _record_refusal(self, progress: StatementProgress) -> None:
        """The server has answered with an error, so the next part has not run. Until it is sent again, an operator may
        change the tables."""
        if progress.divided.ran and not progress.divided.computed:
            self._write(replace(progress, before=""))
        else:
            ddl_progress.delete_begun(self.session, self.who, self.subject)

    def _write(self, progress: StatementProgress) -> None:
        divided_statements.write(self.session, self.who, self.subject, progress)


def part_refusal(error: ShardmergeError, divided: DividedStatement) -> ShardmergeError:
    """``error``, DDL_REFUSED of the next part, after other parts have run."""
    given = {**error.values, "statement": divided.statement}
    return errors.ddl.DDL_PART_REFUSED(
        **given,
        part=divided.parts[divided.ran],
        done="; ".join(divided.parts[: divided.ran]),
        left="; ".join(divided.parts[divided.ran :]),
    )
