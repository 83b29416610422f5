"""A shard table behind an ALTER TABLE or its like, whether its stream passes it now or it has waited before it."""

from __future__ import annotations

from collections.abc import Callable

import pymysql

from proto import errors
from proto.errors import ShardmergeError
from worker.connection import Session, execute, server_info
from worker.create_table import UnreadableCreateTable
from worker.ddl.creation import Creation
from worker.ddl.dialect import Dialect, declared_types
from worker.ddl.parked import Parked
from worker.ddl.session import StatementSession
from worker.ddl.shape import Changing, placed, renamed_columns
from worker.ddl.statement import parse_ddl
from worker.ddl.tracker import Told, Tracked, Tracker
from worker.plan import TablePlan, TargetTable
from worker.position import RelayOffset
from worker.relay.model import Statement
from worker.table import Table
from worker.target_table import find_stand_ins
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


def behind_parked(tracker: Tracker, plan: TablePlan, creation: Creation, item: Parked, task: str) -> Tracked:
    """``plan``'s table behind the statement that it waits before. Raises as :func:`behind`: STRUCTURE_REFUSES."""
    session = tracker.session
    dialect = Dialect(item.is_mariadb, server_info(session).is_mariadb, lambda names: find_stand_ins(session, names))

    def refused(name: str, reason: object, errno: int) -> ShardmergeError:
        return errors.ddl.STRUCTURE_REFUSES(
            source=plan.source,
            task=task,
            position=item.place.position,
            table=name,
            reason=reason,
            errno=errno,
            statement=item.text,
        )

    statement, ddl = read_again(item)
    return behind(tracker, plan.table, creation, item.text, statement, ddl, item.given, dialect, refused)


def read_again(item: Parked) -> tuple[Statement, Changing]:
    """The statement that a shard table waits before, as merged tables get it."""
    nowhere = RelayOffset(0, 0)
    ddl = parse_ddl(item.text, item.schema, item.sql_mode)
    assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else is parked
    return Statement(nowhere, nowhere, nowhere, item.place.position, item.schema, item.text, item.sql_mode), ddl


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
