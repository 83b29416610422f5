"""Tests what a look at the target finds, at both kinds of server: who holds a lock, and what an account may not see."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pymysql
import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect, send
from shardmerge.worker.core.mysql.lock_waits import connection_number
from shardmerge.worker.daemon.diagnosis.target_look import TargetLooker
from tests.integration.snapshot_rig import endpoint
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.pair import KINDS
from tests.support.slow_link import SlowLink
from tests.support.wait import until

TABLE = "`looks`.`t`"
_POOR = ("poor", "secret")


@pytest.fixture(params=sorted(KINDS), scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("looks") / "server"
    # The other tests' servers run without it.
    made = MySQL(path, 44, ("--performance-schema=ON",)) if request.param == "mysql" else MariaDB(path, 44)
    made.start()
    made.execute(
        "CREATE DATABASE looks",
        f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {TABLE} VALUES (1, 1)",
        f"CREATE USER {_POOR[0]}@'127.0.0.1' IDENTIFIED BY '{_POOR[1]}'",
        f"GRANT ALL ON looks.* TO {_POOR[0]}@'127.0.0.1'",
    )
    yield made
    made.stop()


def _target(server: Database, port: int = 0, user: str = "root", password: str = "") -> config_pb2.Endpoint:
    security = config_pb2.Endpoint(host=server.host, port=port or server.port, user=user, password=password)
    security.allow_public_key_retrieval = server.takes_key
    return security


@contextmanager
def _waiting(server: Database, *then: str) -> Generator[tuple[int, int]]:
    """Let one connection wait for the row lock of another one, which executes ``then`` meanwhile; yield the numbers of
    both, the waiting one first."""
    holder, waiter = (connect(endpoint(server), Side.TARGET, name="target") for _ in range(2))
    send(holder, b"START TRANSACTION")
    send(holder, f"UPDATE {TABLE} SET v = 5 WHERE id = 1".encode())
    numbers = connection_number(waiter), connection_number(holder)
    threads = [threading.Thread(target=send, args=(waiter, f"UPDATE {TABLE} SET v = v + 1 WHERE id = 1".encode()))]
    threads += [threading.Thread(target=send, args=(holder, text.encode())) for text in then]
    for thread in threads:
        thread.start()
    try:
        until(
            lambda: (numbers[0], "UPDATE") in {(each.id, each.statement[:6]) for each in server.threads()}, "it waits"
        )
        yield numbers
    finally:
        for thread in threads[1:]:
            thread.join()
        send(holder, b"ROLLBACK")
        threads[0].join()
        for session in (holder, waiter):
            session.close()


def _look(target: config_pb2.Endpoint, connection: int) -> pb.TargetLook:
    looking = TargetLooker().begin(target, {3: connection}, [TABLE])
    assert looking is not None
    return looking.result(30)


def _waits(target: config_pb2.Endpoint, connection: int) -> pb.TargetLook | None:
    """Return the look if it shows a wait."""
    found = _look(target, connection)
    return found if found.waits else None


def test_an_idle_holder(server: Database) -> None:
    with _waiting(server) as (waiter, holder):
        # InnoDB does not renew what information_schema shows of its locks while that is read ten times a second.
        found = until(lambda: _waits(_target(server), waiter), "the wait is shown", 30, every=0.3)
    assert found.answered and not found.hidden and not found.HasField("error")
    assert 0 < found.round_trip < 5
    [wait] = found.waits
    assert (wait.lane, wait.kind, wait.table) == (3, "row lock", TABLE)
    [one] = wait.holders
    assert (one.connection, one.visible, one.user, one.command, one.statement) == (holder, True, "root", "Sleep", "")
    assert one.host.startswith("127.0.0.1")


@pytest.mark.turns
def test_a_holder_that_runs_a_statement(server: Database) -> None:
    """Its statement has no values, and is cut after 200 characters."""
    sleep = f"SELECT SLEEP(4), {', '.join(f'NULL AS column_{number}' for number in range(30))}"
    with _waiting(server, sleep) as (waiter, _):

        def running() -> pb.LockHolder | None:
            waits = _look(_target(server), waiter).waits
            holders = [holder for wait in waits for holder in wait.holders if holder.statement]
            return holders[0] if holders else None

        found = until(running, "the statement is shown", 30, every=0.3)
    assert found.command == "Query"
    assert found.statement.startswith("SELECT SLEEP(?), NULL AS column_0, ") and len(found.statement) <= 200


def test_an_account_that_may_not_see_locks(server: Database) -> None:
    user, password = _POOR
    with _waiting(server) as (waiter, _):
        found = _look(_target(server, user=user, password=password), waiter)
    assert found.answered and not found.HasField("error")
    assert not found.waits
    assert "PROCESS" in found.hidden
    account = f"'{user}'@'127.0.0.1'"
    of_schema = f"GRANT SELECT ON performance_schema.* TO {account};"
    assert found.grants[0] == f"GRANT PROCESS ON *.* TO {account};"
    assert list(found.grants[1:]) == ([of_schema] if isinstance(server, MySQL) else [])
    assert found.HasField("round_trip")


def test_the_printed_grants_show_what_was_hidden(server: Database) -> None:
    server.execute(
        "CREATE USER granted@'127.0.0.1' IDENTIFIED BY 'secret'", "GRANT ALL ON looks.* TO granted@'127.0.0.1'"
    )
    target = _target(server, user="granted", password="secret")
    with _waiting(server) as (waiter, holder):
        poor = _look(target, waiter)
        server.execute(*poor.grants)
        found = until(lambda: _waits(target, waiter), "the wait is shown", 30, every=0.3)
    assert not found.hidden and not found.grants
    assert [one.connection for wait in found.waits for one in wait.holders] == [holder]


@pytest.mark.turns
def test_a_statement_that_scans(server: Database) -> None:
    """The target table has lost its key. MariaDB shows it while the statement runs, MySQL when it has ended."""
    digits = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) "
    more = ", ".join(f"{digits} t{number}" for number in range(8))  # 5^8 rows
    server.execute(
        "CREATE TABLE looks.lost (id INT, v INT)",
        f"INSERT INTO looks.lost SELECT 0, 0 FROM {more}",
        "INSERT INTO looks.lost VALUES (1, 1), (2, 2)",
        "CREATE TABLE looks.kept (id INT PRIMARY KEY, v INT)",
        "INSERT INTO looks.kept SELECT * FROM looks.lost WHERE id > 0",
    )
    user, password = ("root", "") if isinstance(server, MySQL) else _POOR  # MariaDB needs no further privilege
    target = _target(server, user=user, password=password)
    over, ready = threading.Event(), threading.Event()
    numbers: list[int] = []

    def write(table: str) -> None:
        with closing(connect(Endpoint.from_proto(target), Side.TARGET, name="target")) as session:
            numbers.append(connection_number(session))
            ready.set()
            while not over.is_set():
                send(session, f"UPDATE `looks`.`{table}` SET v = v + 1 WHERE id IN (1, 2)".encode())

    for table, wanted in (("lost", True), ("kept", False)):
        over.clear()
        ready.clear()
        thread = threading.Thread(target=write, args=(table,))
        thread.start()
        ready.wait()

        def scans() -> list[pb.TargetScan]:
            tables = ["`looks`.`lost`", "`looks`.`kept`"]
            looking = TargetLooker().begin(target, {3: numbers[-1]}, tables)
            assert looking is not None
            return list(looking.result(30).scans)

        try:
            if not wanted:
                assert not scans()
                continue
            [scan] = until(
                lambda: [each for each in scans() if each.HasField("changed_rows") == isinstance(server, MySQL)],
                "the scan is found",
                60,
            )
            assert (scan.connection, scan.table) == (numbers[-1], "`looks`.`lost`")
            assert scan.read_rows >= 20_000 and scan.statement.startswith("UPDATE `looks`.`lost` SET v = v + ?")
            if isinstance(server, MySQL):
                assert (scan.read_rows, scan.changed_rows) == (5**8 + 2, 2)
            else:
                assert scan.most_keys == 2 and not scan.HasField("changed_rows")
        finally:
            over.set()
            thread.join()


def test_a_connection_that_does_not_wait(server: Database) -> None:
    with closing(connect(endpoint(server), Side.TARGET, name="target")) as session:
        found = _look(_target(server), connection_number(session))
    assert found.answered and not found.waits and not found.hidden


def test_a_ddl_that_runs(server: Database) -> None:
    """Each row takes the server some milliseconds: it computes the digest of a long text."""
    rows = ", ".join(f"({number})" for number in range(400))
    server.execute("CREATE TABLE looks.slow (id INT PRIMARY KEY)", f"INSERT INTO looks.slow VALUES {rows}")
    digest = "ADD COLUMN digest CHAR(128) AS (SHA2(REPEAT('secret', 2500000), 512)) STORED"
    session = connect(endpoint(server), Side.TARGET, name="target")
    number = connection_number(session)

    def alter() -> None:
        with suppress(pymysql.MySQLError):  # it is killed as soon as it has been seen
            send(session, f"ALTER TABLE `looks`.`slow` {digest}".encode())

    thread = threading.Thread(target=alter)
    thread.start()

    def look(table: str) -> pb.TargetLook:
        looking = TargetLooker().begin(_target(server), {}, [table])
        assert looking is not None
        return looking.result(30)

    try:
        found = until(lambda: look("`looks`.`slow`").running, "the statement is shown", 30, every=0.3)
        assert not look(TABLE).running, "it is a statement of another task"
        [one] = found
        assert one.connection == number and 1 <= one.seconds < 60
        assert one.statement.startswith("ALTER TABLE `looks`.`slow` ADD COLUMN") and "secret" not in one.statement
        if isinstance(server, MariaDB):
            assert 0 <= one.progress < 1
        assert one.HasField("progress") == isinstance(server, MariaDB)
    finally:
        server.execute(f"KILL {number}")
        thread.join()
        session.close()
        server.execute("DROP TABLE looks.slow")


@pytest.mark.turns
def test_a_slow_target_has_a_round_trip_before_the_rest(server: Database) -> None:
    with SlowLink(server.port) as link:
        link.delay = 0.3
        looking = TargetLooker().begin(_target(server, link.port), {3: 1}, [TABLE])
        assert looking is not None
        partial = until(
            lambda: look if (look := looking.result(0)).HasField("round_trip") else None, "the round trip is known", 30
        )
        assert not partial.answered
        assert 0.3 <= partial.round_trip < 3
        assert looking.result(30).answered


def test_a_target_that_is_gone_and_one_look_at_a_time(server: Database) -> None:
    looker = TargetLooker()
    with SlowLink(server.port) as link:
        link.delay = 2.0
        first = looker.begin(_target(server, link.port), {}, [])
        assert first is not None
        assert looker.begin(_target(server), {}, []) is None, "the first one has not ended"
    ended = first.result(60)
    assert not ended.answered and ended.error.code == errors.replicate.TARGET_LOST.code
    again = looker.begin(_target(server), {}, [])
    assert again is not None and again.result(30).answered
