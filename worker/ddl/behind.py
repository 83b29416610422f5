"""A shard table behind an ALTER TABLE or its like, whether its stream passes it now or it has waited before it."""

from __future__ import annotations

from collections.abc import Callable

import pymysql

from proto.errors import ShardmergeError
from worker.connection import Session, execute
from worker.create_table import UnreadableCreateTable
from worker.ddl.creation import Creation
from worker.ddl.dialect import Dialect, declared_types
from worker.ddl.session import StatementSession
from worker.ddl.shape import Changing, placed, renamed_columns
from worker.ddl.tracker import Told, Tracked, Tracker
from worker.plan import TargetTable
from worker.relay.model import Statement
from worker.table import Table
from worker.trouble import Trouble, errno_of, reason_of, trouble

Refused = Callable[[str, object, int], ShardmergeError]
"""The coded error for a table's name, the reason and the server's error number, 0 without one."""


def behind(
    tracker: Tracker,
    table: Table,
    creation: Creation,
    text: str,
    statement: Statement,
    ddl: Changing,
    given: StatementSession,
    dialect: Dialect,
    refused: Refused,
) -> Tracked:
    """``table`` behind ``statement``; ``text``: as merged tables get it; ``ddl``: as it was read.

    Raises what ``refused`` gives where the statement cannot be run on the table, and ``pymysql.MySQLError`` of another
    kind (a lost connection).
    """
    moved = placed(text, statement, TargetTable(*tracker.place))
    told = Told(declared_types(statement.text, statement.schema, statement.sql_mode or 0).keys(), renamed_columns(ddl))
    try:
        return tracker.after(table, creation, runs(moved, given), lambda now: dialect.as_declared(now, statement), told)
    except pymysql.MySQLError as error:
        raise refusal_of(error, table.full_name, refused) from error
    except UnreadableCreateTable as error:
        raise refused(table.full_name, error, 0) from error


def runs(text: str, given: StatementSession) -> Callable[[Session], None]:
    """Runs ``text`` in a session like the one it was given in."""

    def run(session: Session) -> None:
        with given.taken_on(session):
            execute(session, text)

    return run


def refusal_of(error: pymysql.MySQLError, table: str, refused: Refused) -> Exception:
    """The server has refused the statement; or ``error`` itself, when it says nothing about it."""
    if trouble(errno_of(error)) not in (Trouble.STATEMENT, Trouble.SESSION):
        return error
    return refused(table, reason_of(error), errno_of(error))
