"""Tests which lock a connection is shown to wait for, at both kinds of server."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from pymysql import MySQLError

from shardmerge.proto import config_pb2, diagnose_pb2
from shardmerge.worker.core.mysql.connection import Session, Side, connect, rows, send
from shardmerge.worker.core.mysql.lock_waits import NO_SESSION, LockWait, connection_number, read_lock_wait
from shardmerge.worker.daemon.diagnosis.target_look import TargetLooker
from tests.integration.snapshot_rig import endpoint
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.pair import KINDS
from tests.support.wait import until

TABLE = "`waits`.`t`"


@pytest.fixture(params=sorted(KINDS), scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder: Path = tmp_path_factory.mktemp("locks")
    path = folder / "server"
    # The other tests' servers run without it.
    made = MySQL(path, 43, ("--performance-schema=ON",)) if request.param == "mysql" else MariaDB(path, 43)
    made.start()
    made.execute(
        "CREATE DATABASE waits", "CREATE TABLE waits.t (id INT PRIMARY KEY, v INT)", "INSERT INTO waits.t VALUES (1, 1)"
    )
    yield made
    made.stop()


def _wait_of(server: Database, locking: tuple[str, ...]) -> tuple[LockWait, int]:
    """Return the wait of an UPDATE while another connection has run ``locking``, and that connection's number."""
    holder, waiter, reader = (connect(endpoint(server), Side.TARGET, name="target") for _ in range(3))
    for statement in locking:
        send(holder, statement.encode())

    def update() -> None:
        send(waiter, f"UPDATE {TABLE} SET v = v + 1 WHERE id = 1".encode())

    thread = threading.Thread(target=update)
    thread.start()
    try:
        number = connection_number(waiter)
        found = until(lambda: read_lock_wait(reader, number, [TABLE]), "the wait is seen", 30, every=0.3)
        assert rows(holder, "SELECT CONNECTION_ID()") == [(connection_number(holder),)]
        return found, connection_number(holder)
    finally:
        send(holder, b"ROLLBACK")
        send(holder, b"UNLOCK TABLES")
        thread.join()
        for session in (holder, waiter, reader):
            session.close()


def test_a_row_lock(server: Database) -> None:
    locking = ("START TRANSACTION", f"UPDATE {TABLE} SET v = 5 WHERE id = 1")
    wait, holder = _wait_of(server, locking)
    assert (wait.kind, wait.table, wait.holders) == ("row lock", TABLE, (holder,))


def test_a_metadata_lock(server: Database) -> None:
    locking = (f"LOCK TABLES {TABLE} READ",)
    wait, holder = _wait_of(server, locking)
    assert (wait.kind, wait.table) == ("metadata lock", TABLE)
    if isinstance(server, MariaDB):
        assert "metadata_lock_info" in wait.hint
        server.execute("INSTALL SONAME 'metadata_lock_info'")
        wait, holder = _wait_of(server, locking)
    assert wait.holders == (holder,)


@contextmanager
def _waiting_update(server: Database) -> Generator[int]:
    """An UPDATE that waits for another transaction's row during the block; yields the number of its connection."""
    waiter = connect(endpoint(server), Side.TARGET, name="target")
    thread = threading.Thread(target=lambda: send(waiter, f"UPDATE {TABLE} SET v = v + 1 WHERE id = 1".encode()))
    thread.start()
    try:
        yield connection_number(waiter)
    finally:
        thread.join()
        waiter.close()


def _look(account: config_pb2.Endpoint, lanes: dict[int, int]) -> diagnose_pb2.TargetLook:
    looking = TargetLooker().begin(account, lanes, [TABLE])
    assert looking is not None
    return looking.result(30)


def _account(server: Database, user: str = "root") -> config_pb2.Endpoint:
    return config_pb2.Endpoint(host="127.0.0.1", port=server.port, user=user)


def test_a_prepared_transaction_without_a_session(server: Database) -> None:
    with closing(connect(endpoint(server), Side.TARGET, name="target")) as holder:
        for statement in ("XA START 'x'", f"UPDATE {TABLE} SET v = 5 WHERE id = 1", "XA END 'x'", "XA PREPARE 'x'"):
            send(holder, statement.encode())
        ended = connection_number(holder)
    connections = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %s"
    until(lambda: server.query(connections % ended) == [(0,)], "its session has ended", 30)
    with closing(connect(endpoint(server), Side.TARGET, name="target")) as reader, ExitStack() as stack:
        number = stack.enter_context(_waiting_update(server))
        stack.callback(server.execute, "XA ROLLBACK 'x'")
        found = until(lambda: read_lock_wait(reader, number, [TABLE]), "the wait is seen", 30, every=0.3)
        assert (found.kind, found.table, found.holders) == ("row lock", TABLE, (NO_SESSION,))
        assert found.shown == f"a row lock of {TABLE}, which a prepared XA transaction of the target may hold"
        look = _look(_account(server), {3: number})
        [wait] = look.waits
        assert [(each.connection, each.visible) for each in wait.holders] == [(0, False)]
        assert (look.answered, look.hidden) == (True, "")


def test_the_statement_of_a_holder_has_no_values(server: Database) -> None:
    secret = "SELECT SLEEP(30), 'Hunter2' AS password /* Hunter2 */, \"Hunter2\""
    with closing(connect(endpoint(server), Side.TARGET, name="target")) as holder, ExitStack() as stack:
        send(holder, b"START TRANSACTION")
        send(holder, f"UPDATE {TABLE} SET v = 5 WHERE id = 1".encode())
        running = threading.Thread(target=lambda: _ends_by_kill(holder, secret))
        running.start()
        stack.callback(running.join)
        number = stack.enter_context(_waiting_update(server))
        stack.callback(server.execute, f"KILL {connection_number(holder)}")
        waits = until(lambda: _look(_account(server), {3: number}).waits, "the holder is seen", 30, every=0.3)
        [[shown]] = [wait.holders for wait in waits]
        assert (shown.connection, shown.visible, shown.user) == (connection_number(holder), True, "root")
        assert shown.statement == "SELECT SLEEP(?), ? AS password , ?"


def _ends_by_kill(session: Session, statement: str) -> None:
    with suppress(MySQLError):
        send(session, statement.encode())


def test_an_account_that_sees_no_locks(server: Database) -> None:
    server.execute("CREATE USER small@'%' IDENTIFIED BY ''", "GRANT ALL ON waits.* TO small@'%'")
    with closing(connect(endpoint(server), Side.TARGET, name="target")) as holder, ExitStack() as stack:
        send(holder, b"START TRANSACTION")
        send(holder, f"UPDATE {TABLE} SET v = 5 WHERE id = 1".encode())
        number = stack.enter_context(_waiting_update(server))
        stack.callback(send, holder, b"ROLLBACK")
        until(lambda: _look(_account(server), {3: number}).waits, "the wait is seen", 30, every=0.3)
        look = _look(_account(server, "small"), {3: number})
    assert (look.answered, list(look.waits), look.HasField("error")) == (True, [], False)
    assert "the account lacks the privilege PROCESS" in look.hidden
    assert look.round_trip > 0


def test_a_statement_of_the_account_that_waits(server: Database) -> None:
    """Of a reader of the history, or a DDL: the worker does not know its connection."""
    with closing(connect(endpoint(server), Side.TARGET, name="target")) as holder, ExitStack() as stack:
        send(holder, b"START TRANSACTION")
        send(holder, f"UPDATE {TABLE} SET v = 5 WHERE id = 1".encode())
        number = stack.enter_context(_waiting_update(server))
        stack.callback(send, holder, b"ROLLBACK")
        waits = until(lambda: _look(_account(server), {}).waits, "the wait is seen", 30, every=0.3)
        [wait] = waits
        assert (wait.connection, wait.kind, wait.table) == (number, "row lock", TABLE)
        assert wait.statement == f"UPDATE {TABLE} SET v = v + ? WHERE id = ?"
        assert wait.seconds >= 1
        assert [each.connection for each in wait.holders] == [connection_number(holder)]
        [of_lane] = _look(_account(server), {3: number}).waits
        assert (of_lane.lane, of_lane.statement, of_lane.connection) == (3, "", 0)


def test_only_some_lanes_are_looked_at(server: Database) -> None:
    look = _look(_account(server), dict.fromkeys(range(128), 1 << 31))
    assert look.answered
    assert look.hidden == "what 112 more lane(s) wait for: those that wait longest are looked at first"


def test_a_connection_that_does_not_wait(server: Database) -> None:
    session = connect(endpoint(server), Side.TARGET, name="target")
    assert read_lock_wait(session, connection_number(session), [TABLE]) is None
    assert read_lock_wait(session, 1 << 31, [TABLE]) is None
    session.close()
