"""Tests which lock a connection is shown to wait for, at both kinds of server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.worker.core.mysql.connection import Side, connect, rows, send
from shardmerge.worker.core.mysql.lock_waits import LockWait, connection_number, read_lock_wait
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
        found = until(lambda: read_lock_wait(reader, number, [TABLE]), "the wait is seen", 30)
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


def test_a_connection_that_does_not_wait(server: Database) -> None:
    session = connect(endpoint(server), Side.TARGET, name="target")
    assert read_lock_wait(session, connection_number(session), [TABLE]) is None
    assert read_lock_wait(session, 1 << 31, [TABLE]) is None
    session.close()
