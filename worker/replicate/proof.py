"""What the target's answers prove: whether a statement did what it should, and why it was refused. Raises, else
returns."""

from __future__ import annotations

import pymysql
from pymysql.constants import ER

from proto import errors
from proto.errors import ShardmergeError
from worker.connection import Session, errno_of, send
from worker.replicate.batch import Keys, collision, diverged
from worker.replicate.presence import one_of
from worker.replicate.refusal import is_of_row
from worker.replicate.statements import (
    DeleteKeys,
    DeleteRow,
    InsertRows,
    ReplaceRows,
    Statement,
    UpdateRow,
)


class Ambiguous(Exception):
    """Rows that should exist were overwritten, but the count does not prove that all of them did."""


class RowRefused(Exception):
    """The target refused a statement because of a row in it; the transaction is rolled back."""

    def __init__(self, error: pymysql.MySQLError) -> None:
        super().__init__(error)
        self.error = error


def why_refused(
    session: Session, statement: Statement, keys: Keys, error: pymysql.MySQLError
) -> ShardmergeError | pymysql.MySQLError | RowRefused:
    """What to raise for a statement that the target refused."""
    if not is_of_row(errno_of(error)):
        return error
    send(session, b"ROLLBACK")
    if errno_of(error) == ER.DUP_ENTRY and isinstance(statement, InsertRows):
        fresh = tuple(key for key in statement.keys if not (keys[key].existed or keys[key].loose))
        found = one_of(session, statement.plan, fresh, present=True) if fresh else None
        if found is not None:
            # What the statement's rows have in common is the target; each is of a shard table of its own.
            return collision(keys[found].plan, found, keys[found].position, None)
    return RowRefused(error)


def check(session: Session, statement: Statement, keys: Keys, affected: int, *, safe_mode: bool) -> None:
    """Whether a statement did what it should: raises DIVERGED, TARGET_REJECTED, Ambiguous."""
    match statement:
        case DeleteKeys(plan=plan, keys=wanted, loose=loose):
            if affected != len(wanted) and not safe_mode and not loose:
                send(session, b"ROLLBACK")
                missing = one_of(session, plan, wanted, present=False) or wanted[0]
                state = keys[missing]
                raise diverged(state.plan, len(wanted) - affected, missing, state.position)
        case ReplaceRows(count=count, any_count=any_count):
            if affected != 2 * count and not any_count:
                raise Ambiguous
        case InsertRows(plan=plan, count=count):
            if affected != count:
                raise errors.replicate.TARGET_REJECTED(
                    target_schema=plan.target_schema,
                    target_table=plan.target_table,
                    source=plan.source,
                    reason=f"an INSERT of {count} rows affected {affected}",
                    errno=0,
                )
        case DeleteRow(operation=operation):
            if affected != 1 and not operation.plan.loose:
                raise diverged(operation.plan, 1, b"", operation.position)
        case UpdateRow():
            pass
