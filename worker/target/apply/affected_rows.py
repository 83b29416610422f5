"""Checks statements by their affected-row counts, and classifies statements that the target refused."""

from __future__ import annotations

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.batch import Keys, collision, diverged
from shardmerge.worker.core.mysql.connection import Session, errno_of, send
from shardmerge.worker.target.apply.dml import DeleteKeys, DeleteRow, InsertRows, ReplaceRows, Statement, UpdateRow
from shardmerge.worker.target.apply.row_lookup import find_one

_ROW_ERRORS = frozenset(
    {
        ER.BAD_NULL_ERROR,  # 1048
        ER.DUP_ENTRY,  # 1062
        1118,  # the row is too large for its page
        1169,  # a unique constraint, without its name
        1264,  # out of range
        1265,  # data truncated
        1292,  # truncated incorrect value
        1300,  # invalid character string
        1364,  # a column that has no default gets no value
        1366,  # incorrect value for the column
        1406,  # data too long
        1416,  # not a geometry value
        1441,  # datetime overflow
        1526,  # no partition for the value
        1586,  # duplicate entry, with the key's name
        1690,  # out of range in an expression: a generated column
        3140,  # invalid JSON text
        3819,  # a check constraint of MySQL
        4025,  # a constraint of MariaDB
        8025,  # TiDB: the row is longer than txn-entry-size-limit
    }
)
"""From MySQL's "Server Error Message Reference", MariaDB's "MariaDB Error Codes" and TiDB's "Error Codes and
Troubleshooting". Errors that are not listed (connections, locks, disk, privileges, structures, triggers) are not about
one row."""


class CountAmbiguous(Exception):
    """Rows were overwritten, but the affected-row count does not prove that all of them existed."""


class RowRefused(Exception):
    """The target refused a statement because of a row in it; the transaction is rolled back."""

    def __init__(self, error: pymysql.MySQLError) -> None:
        super().__init__(error)
        self.error = error


def is_row_error(errno: int) -> bool:
    """Whether the statement failed because of a value in it: the same row fails again, other rows do not."""
    return errno in _ROW_ERRORS


def classify_refusal(
    session: Session, statement: Statement, keys: Keys, error: pymysql.MySQLError
) -> ShardmergeError | pymysql.MySQLError | RowRefused:
    """The error to raise for a statement that the target refused."""
    if not is_row_error(errno_of(error)):
        return error
    send(session, b"ROLLBACK")
    if errno_of(error) == ER.DUP_ENTRY and isinstance(statement, InsertRows):
        fresh = tuple(key for key in statement.keys if not (keys[key].existed or keys[key].existence_unknown))
        found = find_one(session, statement.plan, fresh, present=True) if fresh else None
        if found is not None:
            # The rows share only the target table: each may come from a different shard table.
            return collision(keys[found].plan, found, keys[found].position, None)
    return RowRefused(error)


def verify(session: Session, statement: Statement, keys: Keys, affected: int, *, safe_mode: bool) -> None:
    """Check the affected-row count of a statement. Raises DIVERGED, TARGET_REJECTED, CountAmbiguous."""
    match statement:
        case DeleteKeys(plan=plan, keys=wanted, may_lack_rows=loose):
            if affected != len(wanted) and not safe_mode and not loose:
                send(session, b"ROLLBACK")
                missing = find_one(session, plan, wanted, present=False) or wanted[0]
                state = keys[missing]
                raise diverged(state.plan, len(wanted) - affected, missing, state.position)
        case ReplaceRows(count=count, any_count=any_count):
            if affected != 2 * count and not any_count:
                raise CountAmbiguous
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
            if affected != 1 and not operation.plan.may_lack_rows:
                raise diverged(operation.plan, 1, b"", operation.position)
        case UpdateRow():
            pass
