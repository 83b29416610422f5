"""Tests temporary errors of a target: retried by error number, shown in the status, applied exactly once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest
from pymysql.connections import Connection
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec
from shardmerge.worker.core.mysql.connection import Endpoint, Side, to_coded
from shardmerge.worker.replicate import lane_job
from shardmerge.worker.replicate.unit import ReplicateUnit
from shardmerge.worker.target.apply.target_session import ApplySettings
from shardmerge.worker.unit.contract import Stopped
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import subtask_config
from tests.support.database import Database
from tests.support.disk import fill, small_disk
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.pair import KINDS, emptied
from tests.support.wait import until

USER = "dm"
TAKER = "taker"
LANES = 2


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    server = MariaDB(tmp_path_factory.mktemp("source") / "server", 101)
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="module", params=KINDS)
def shared_target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    kind: Callable[..., Database] = KINDS[request.param]
    server = kind(tmp_path_factory.mktemp("target") / "server", 102, ("--innodb-lock-wait-timeout=1",))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry for longer: by default a lane gives up after half a minute, and the subtask starts again."""

    def settings(**arguments: object) -> ApplySettings:
        return replace(ApplySettings(**arguments), retry_seconds=600.0)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(lane_job, "ApplySettings", settings)


@contextmanager
def _rig(source: Database, target: Database, directory: Path) -> Generator[LaneRig]:
    """Provide a table with a key and one without, where a row applied twice is visible; lanes log in as a user without
    administrative privileges."""
    emptied(source)
    emptied(target)
    source.execute(
        "CREATE DATABASE shard_1",
        "CREATE TABLE shard_1.t (id BIGINT PRIMARY KEY, v VARCHAR(2000))",
        "CREATE TABLE shard_1.log (id BIGINT, v VARCHAR(2000))",
    )
    target.execute(
        f"DROP USER IF EXISTS {USER}",
        f"CREATE USER {USER}",
        f"GRANT ALL ON shard_1.* TO {USER}",
        f"GRANT ALL ON dm_meta.* TO {USER}",
    )
    config = subtask_config(target)
    config.target.user = USER
    with LaneRig(source, target, directory, config) as made:
        yield made


@pytest.fixture
def rig(source: Database, shared_target: Database, tmp_path: Path) -> Iterator[LaneRig]:
    with _rig(source, shared_target, tmp_path) as made:
        yield made


def _change(rig: LaneRig, first: int) -> None:
    """Write 20 rows of either table from ``first`` on, and a change of each row with a key that exists."""
    rows = ", ".join(f"({number}, 'new')" for number in range(first, first + 20))
    rig.source.execute(
        f"INSERT INTO shard_1.t VALUES {rows}",
        f"INSERT INTO shard_1.log VALUES {rows}",
        f"UPDATE shard_1.t SET v = '+{first}'",
    )


def _begin(rig: LaneRig) -> Run:
    run = rig.replicate(LANES)
    _change(rig, 1)
    run.until_synced()
    return run


def _finish(rig: LaneRig, run: Run) -> None:
    """Wait until the run continues by itself; nothing was lost or applied twice."""
    _change(rig, 101)
    run.until_synced()
    assert run.stop() == Stopped()
    for table in ("shard_1.t", "shard_1.log"):
        statement = f"SELECT * FROM {table} ORDER BY id, v"
        assert rig.target.query(statement) == rig.source.query(statement)


def _retried(run: Run, spec: ErrorSpec, errnos: set[int], attempt: int = 3) -> None:
    """Check that some lane shows that it retries, why, and how often."""

    def seen() -> bool:
        assert not run.ended, run.join()
        found = [lane for lane in run.status().lanes if lane.phase == "retrying"]
        return any(
            lane.error.code == spec.code
            and int(lane.error.args["errno"]) in errnos
            and lane.attempt >= attempt
            and f"attempt {lane.attempt} after errno" in lane.waits_for
            for lane in found
        )

    until(seen, f"a lane repeats after {spec.name}")
    unit = run.unit
    assert isinstance(unit, ReplicateUnit)
    until(lambda: "attempt" in unit.activity() or run.status().synced, "the phrase for the whole says it too")


def _until_a_row_is_waited_for(target: Database) -> None:
    """Wait until a transaction of the target waits for a row lock.

    The server takes a new look at its transactions only when 0.1 s have passed since the last query of this table: with
    more frequent queries the first answer remains (storage/innobase/trx/trx0i_s.cc, CACHE_MIN_IDLE_TIME).
    """
    statement = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    until(lambda: bool(target.query(statement)), "a lane waits for a row", every=0.3)


@contextmanager
def _transaction(server: Database) -> Generator[Connection]:
    connection = server.connect()
    try:
        connection.begin()
        yield connection
        connection.rollback()
    finally:
        connection.close()


def _run(connection: Connection, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.turns
def test_a_row_that_a_foreign_session_locks(rig: LaneRig) -> None:
    """1205: the server stops waiting."""
    run = _begin(rig)
    with _transaction(rig.target) as other:
        _run(other, "SELECT * FROM shard_1.t FOR UPDATE")
        _change(rig, 51)
        _retried(run, errors.replicate.TARGET_CONFLICT, {ER.LOCK_WAIT_TIMEOUT})
    _finish(rig, run)


def test_a_deadlock(rig: LaneRig) -> None:
    """1213: another session holds the row and needs the checkpoint, which the lane holds; the lane has changed less."""
    run = _begin(rig)
    rig.target.execute(
        "SET GLOBAL innodb_lock_wait_timeout = 600",
        "CREATE TABLE shard_1.heavy (id BIGINT PRIMARY KEY, v VARCHAR(100))",
    )
    session = rig.target.connect()
    rig.target.kill_threads(USER)  # the timeout applies only to new sessions
    try:
        _change(rig, 31)
        run.until_synced()
        with _transaction(rig.target) as other:
            rows = ", ".join(f"({number}, 'x')" for number in range(5000))
            _run(other, f"INSERT INTO shard_1.heavy VALUES {rows}")
            _run(other, "SELECT * FROM shard_1.t FOR UPDATE")
            _change(rig, 51)
            _until_a_row_is_waited_for(rig.target)
            _run(other, "SELECT * FROM dm_meta.lane_checkpoint FOR UPDATE")
            _retried(run, errors.replicate.TARGET_CONFLICT, {ER.LOCK_DEADLOCK}, attempt=2)
        _finish(rig, run)
    finally:
        session.close()
        rig.target.execute("SET GLOBAL innodb_lock_wait_timeout = 1")


def test_a_connection_that_is_killed(rig: LaneRig) -> None:
    """2006 and 2013 of the client, 1927 of MariaDB: in the middle of a transaction, which is rolled back."""
    run = _begin(rig)
    rig.target.execute("SET GLOBAL innodb_lock_wait_timeout = 600")
    rig.target.kill_threads(USER)
    try:
        _change(rig, 31)
        run.until_synced()
        with _transaction(rig.target) as other:
            _run(other, "SELECT * FROM shard_1.t FOR UPDATE")
            _change(rig, 51)
            _until_a_row_is_waited_for(rig.target)
            rig.target.kill_threads(USER)
            _retried(run, errors.replicate.TARGET_LOST, {0, 1317, 1927, 2006, 2013}, attempt=2)
        _finish(rig, run)
    finally:
        rig.target.execute("SET GLOBAL innodb_lock_wait_timeout = 1")


@pytest.mark.turns
def test_a_server_that_shuts_down(rig: LaneRig) -> None:
    """1053, 2013 and 2003, until the server is back."""
    run = _begin(rig)
    other = rig.target.connect()
    other.begin()
    _run(other, "SELECT * FROM shard_1.t FOR UPDATE")
    _change(rig, 51)
    _until_a_row_is_waited_for(rig.target)
    rig.target.shut_down()
    other.close()
    _retried(run, errors.replicate.TARGET_LOST, {0, 1053, 1927, 2003, 2006, 2013})
    rig.target.start()
    _finish(rig, run)


def test_no_connection_left(rig: LaneRig) -> None:
    """1040; the server reserves one connection for an administrator."""
    run = _begin(rig)
    [(before,)] = rig.target.query("SELECT @@GLOBAL.max_connections")
    rig.target.execute("SET GLOBAL max_connections = 12")
    taken: list[Connection] = []
    try:
        admin = rig.target.connect()
        rig.target.execute(f"CREATE USER {TAKER}")
        until(lambda: _take_all(rig.target, admin, taken), "all connections are taken, and none is the lanes'")
        _change(rig, 51)
        _retried(run, errors.replicate.TARGET_BUSY, {ER.CON_COUNT_ERROR})
        with admin.cursor() as cursor:
            cursor.execute(f"SET GLOBAL max_connections = {before}")
        admin.close()
    finally:
        for connection in taken:
            connection.close()
        rig.target.execute(f"DROP USER {TAKER}")
    _finish(rig, run)


def _take_all(target: Database, admin: Connection, taken: list[Connection]) -> bool:
    """Return whether no connection was left. Disconnected lanes reconnect by themselves, maybe before all are taken.

    All questions use ``admin``: the server frees the administrator's place some time after a connection was closed,
    so a second new connection can be refused.
    """

    def lanes() -> list[int]:
        with admin.cursor() as cursor:
            cursor.execute("SHOW FULL PROCESSLIST")
            return [int(row[0]) for row in cursor.fetchall() if row[1] == USER]

    for number in lanes():
        try:
            with admin.cursor() as cursor:
                cursor.execute(f"KILL {number}")
        except pymysql.MySQLError as error:
            assert error.args[0] == ER.NO_SUCH_THREAD, error
    try:
        while True:
            taken.append(target.connect(user=TAKER))
    except pymysql.MySQLError as error:
        assert error.args[0] in (ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS), error
    return not lanes()


@pytest.mark.parametrize(
    ("variable", "errno"), [("read_only", ER.OPTION_PREVENTS_STATEMENT), ("transaction_read_only", 1792)]
)
def test_a_target_that_has_become_a_replica(rig: LaneRig, variable: str, errno: int) -> None:
    """1290 and 1792: a fail-over is in progress."""
    run = _begin(rig)
    spelt = "tx_read_only" if variable != "read_only" and rig.target.flavor == "mariadb" else variable
    rig.target.execute(f"SET GLOBAL {spelt} = ON")
    try:
        rig.target.kill_threads(USER)
        _change(rig, 51)
        _retried(run, errors.replicate.TARGET_READ_ONLY, {errno})
    finally:
        admin = rig.target.connect()
        with admin.cursor() as cursor:
            cursor.execute(f"SET GLOBAL {spelt} = OFF")
        admin.close()
        rig.target.kill_threads(USER)
    _finish(rig, run)


def _wide_rows(server: Database, table: str, count: int) -> None:
    """Insert ``count`` rows of 100 kB."""
    for start in range(1000, 1000 + count):
        rows = ", ".join(f"({number}, '{'x' * 2000}')" for number in range(start * 50, start * 50 + 50))
        server.execute(f"INSERT INTO {table} VALUES {rows}")


def test_a_full_disk(source: Database, tmp_path: Path) -> None:
    """1114 from the kernel's error. (MariaDB 10.11 ends itself when it cannot even roll back for lack of space.)"""
    target = MySQL(tmp_path / "target", 102)
    try:
        with _rig(source, target.start(), tmp_path) as rig:
            target.execute("CREATE DATABASE shard_1")
            with small_disk(target.directory / "data" / "shard_1", 64) as disk:
                run = _begin(rig)
                ballast = fill(disk, 1 << 20)
                _wide_rows(rig.source, "shard_1.t", 100)
                _retried(run, errors.replicate.TARGET_STORAGE, {ER.RECORD_FILE_FULL})
                ballast.unlink()
                _finish(rig, run)
    finally:
        target.stop()


@pytest.mark.turns
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_space_that_may_not_grow(source: Database, tmp_path: Path, kind: str) -> None:
    """1114, until an operator drops a table."""
    make: Callable[..., Database] = KINDS[kind]
    space = "--innodb-data-file-path=ibdata1:12M:autoextend:max:40M"
    target = make(tmp_path / "target", 102, (space, "--innodb-file-per-table=0"))
    try:
        with _rig(source, target.start(), tmp_path) as rig:
            run = _begin(rig)
            target.execute("CREATE TABLE shard_1.heavy (id BIGINT PRIMARY KEY, v VARCHAR(2000))")
            with pytest.raises(pymysql.MySQLError, match="is full"):
                _wide_rows(target, "shard_1.heavy", 400)
            _wide_rows(rig.source, "shard_1.t", 20)
            _retried(run, errors.replicate.TARGET_STORAGE, {ER.RECORD_FILE_FULL})
            target.execute("DROP TABLE shard_1.heavy")
            _finish(rig, run)
    finally:
        target.stop()


@pytest.mark.parametrize(
    ("errno", "spec"),
    [
        (1213, errors.replicate.TARGET_CONFLICT),
        (1205, errors.replicate.TARGET_CONFLICT),
        (2006, errors.replicate.TARGET_LOST),
        (2013, errors.replicate.TARGET_LOST),
        (1053, errors.replicate.TARGET_LOST),
        (1040, errors.replicate.TARGET_BUSY),
        (1290, errors.replicate.TARGET_READ_ONLY),
        (1792, errors.replicate.TARGET_READ_ONLY),
        (1836, errors.replicate.TARGET_READ_ONLY),
        (1021, errors.replicate.TARGET_STORAGE),
        (1114, errors.replicate.TARGET_STORAGE),
        (3, errors.replicate.TARGET_STORAGE),
    ],
)
def test_each_number_has_its_class_and_is_repeated(errno: int, spec: ErrorSpec) -> None:
    error = to_coded(pymysql.OperationalError(errno, "…"), Endpoint("h", 1, "u"), Side.TARGET, "target")
    assert error.spec is spec
    assert error.spec.retryable
