"""Tests which of two statements on one target has run when the first one's process was killed before it sent it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf import json_format

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.execute.run_once import OneRun, digest_of, key_of_run, run_once
from shardmerge.worker.target.records import ddl_progress, executed_locks, subtask_record
from shardmerge.worker.target.records.ddl_progress import Begun
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.partitioning import Partitioning
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from tests.support.database import Database
from tests.support.epochs import numbered
from tests.support.pair import KINDS

META, TASK, FIRST, SECOND, LOCK = "dm_meta", "task", "mysql-01", "mysql-02", "g1"
TARGET = TargetTable("shop", "orders")
JOIN = "j"


@pytest.fixture(scope="module", params=KINDS.values(), ids=list(KINDS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made: Database = request.param(tmp_path_factory.mktemp("run_once"), 33).start()
    yield made
    made.stop()


@pytest.fixture
def session(server: Database) -> Iterator[Session]:
    server.execute(
        "DROP DATABASE IF EXISTS dm_meta",
        "DROP DATABASE IF EXISTS shop",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY)",
    )
    made = connect(Endpoint(server.host, server.port, server.user, server.password), Side.TARGET, name="target")
    ensure_meta(made, META)
    for source in (FIRST, SECOND):
        subtask_record.take_over(made, SubtaskKey(META, TASK, source), numbered(1), "")
    yield made
    made.close()


def _begun(session: Session, subject: str, clause: str) -> None:
    """The first source has begun a statement, and was killed before it sent it."""
    text = f"ALTER TABLE {TARGET.quoted} {clause}"
    ddl_progress.write_begun(session, SubtaskKey(META, TASK, FIRST), subject, Begun(text, digest_of(session, [TARGET])))


def _run(session: Session, source: str, clause: str, *, run: str = "") -> None:
    text, subject = f"ALTER TABLE {TARGET.quoted} {clause}", "" if run else JOIN
    one = OneRun([TARGET], text, UNKNOWN_SESSION, subject, run=run, computed=not run)
    run_once(session, SubtaskKey(META, TASK, source), 1, one, StopSignal(), lambda _: None)


def _columns(server: Database) -> list[str]:
    found = server.query("SELECT column_name FROM information_schema.columns WHERE table_schema = 'shop' ORDER BY 1")
    return [str(name) for (name,) in found]


def test_a_schema_join_that_was_begun_before_another_one(server: Database, session: Session) -> None:
    """It is computed again from what the target is then, so it has not run."""
    _begun(session, JOIN, "ADD a INT")
    _run(session, SECOND, "ADD b INT")
    _run(session, FIRST, "ADD a INT")
    assert _columns(server) == ["a", "b", "id"]


def test_a_schema_join_that_was_begun_before_the_table_was_changed_by_hand(server: Database, session: Session) -> None:
    _begun(session, JOIN, "ADD a INT")
    server.execute("ALTER TABLE shop.orders ADD b INT")
    _run(session, FIRST, "ADD a INT")
    assert _columns(server) == ["a", "b", "id"]


def test_a_statement_of_a_lock_that_was_begun_before_a_schema_join(server: Database, session: Session) -> None:
    _begun(session, key_of_run([TARGET], LOCK), "ADD a INT")
    _run(session, SECOND, "ADD b INT")
    _run(session, FIRST, "ADD a INT", run=LOCK)
    assert _columns(server) == ["a", "b", "id"]


def test_a_statement_of_a_lock_that_has_run_before_a_schema_join(server: Database, session: Session) -> None:
    _begun(session, key_of_run([TARGET], LOCK), "ADD a INT")
    server.execute("ALTER TABLE shop.orders ADD a INT")
    _run(session, SECOND, "ADD b INT")
    _run(session, SECOND, "ADD a INT", run=LOCK)
    assert _columns(server) == ["a", "b", "id"]


def test_a_statement_of_a_lock_that_was_recorded_while_another_owner_waited(server: Database, session: Session) -> None:
    """The record of the run replaces those of its begin. The values of a column that it drops and adds again would be
    lost, without an error."""
    server.execute("ALTER TABLE shop.orders ADD a INT", "INSERT INTO shop.orders VALUES (1, 7)")
    executed_locks.write(session, META, TASK, TARGET, LockRun(LOCK, "after"))
    _run(session, SECOND, "DROP a, ADD a INT", run=LOCK)
    assert server.query("SELECT a FROM shop.orders") == [(7,)]
    _run(session, SECOND, "DROP a, ADD a INT", run="a later one")
    assert server.query("SELECT a FROM shop.orders") == [(None,)]


def test_rows_that_were_inserted_after_it_was_begun(server: Database, session: Session) -> None:
    """They change the next AUTO_INCREMENT value, which is printed with the definition."""
    server.execute("ALTER TABLE shop.orders MODIFY id BIGINT AUTO_INCREMENT", "INSERT INTO shop.orders VALUES (1)")
    _begun(session, key_of_run([TARGET], LOCK), "ADD a INT")
    server.execute("INSERT INTO shop.orders VALUES (7)")
    _run(session, FIRST, "ADD a INT", run=LOCK)
    assert _columns(server) == ["a", "id"]


def test_an_older_process_runs_nothing(server: Database, session: Session) -> None:
    subtask_record.take_over(session, SubtaskKey(META, TASK, FIRST), numbered(2), "")
    with pytest.raises(ShardmergeError) as caught:
        _run(session, FIRST, "ADD a INT")
    assert caught.value.spec is errors.replicate.FENCED
    assert _columns(server) == ["id"]


_KEEPS = (
    "ADD b INT",
    "ADD KEY (v)",
    "ALTER v SET DEFAULT 'x'",
    "MODIFY v VARCHAR(30)",
    "MODIFY n BIGINT NOT NULL",
    "CHANGE v v TEXT",
    "CONVERT TO CHARACTER SET utf8mb4",
    "COMMENT 'of both'",
)
_CHANGES = (
    "DROP v",
    "DROP COLUMN v, ADD b INT",
    "RENAME COLUMN v TO w",
    "CHANGE v w VARCHAR(20)",
    "MODIFY v VARCHAR(10)",
    "MODIFY v INT",
    "MODIFY t DATETIME(3)",
    "MODIFY t DATETIME(6) NOT NULL",
    "CONVERT TO CHARACTER SET latin1",
    "DROP PRIMARY KEY",
    "RENAME TO shop.of_one",
)


def _other_task(server: Database, table: str) -> None:
    """Another task merges this table of a schema ``eu`` into the target."""
    rules = config_pb2.SubTaskConfig(
        routes=[config_pb2.RouteRule(schema_pattern="eu", table_pattern="orders_*", target_schema="shop")]
    )
    rules.routes[0].target_table = "orders"
    recorded = Partitioning(1, frozenset(), frozenset({0}), json_format.MessageToJson(rules, indent=None)).to_json()
    with server.connect() as session, session.cursor() as cursor:
        for task, source, name in (("other", SECOND, table), (TASK, FIRST, "orders_1")):
            cursor.execute("DELETE FROM dm_meta.subtask WHERE task = %s AND source = %s", (task, source))
            cursor.execute(
                "INSERT INTO dm_meta.subtask (task, source, epoch, phase, meta_token, start_file, start_pos, "
                "start_gtid_set, start_server, dealing, joining, update_token) "
                "VALUES (%s, %s, 1, 'replicate', '', '', 0, '', '', %s, '', '')",
                (task, source, recorded),
            )
            cursor.execute("INSERT INTO dm_meta.table_structure VALUES (%s, %s, 0, 'eu', %s, '')", (task, source, name))
        session.commit()


@pytest.mark.parametrize("clause", [*_KEEPS, *_CHANGES])
def test_a_statement_that_changes_values_of_another_task(server: Database, session: Session, clause: str) -> None:
    server.execute(
        "ALTER TABLE shop.orders ADD v VARCHAR(20) CHARACTER SET utf8mb4, ADD n INT, ADD t DATETIME(6)",
        "ALTER TABLE shop.orders MODIFY n INT NOT NULL, CONVERT TO CHARACTER SET utf8mb4",
    )
    _other_task(server, "orders_2")
    before = server.query("SHOW CREATE TABLE shop.orders")
    if clause in _KEEPS:
        _run(session, FIRST, clause)
        assert server.query("SHOW CREATE TABLE shop.orders") != before or "CONVERT" in clause
        return
    with pytest.raises(ShardmergeError) as caught:
        _run(session, FIRST, clause)
    assert caught.value.spec is errors.ddl.OTHER_TASK_VALUES
    assert "eu.orders_2 of source mysql-02" in str(caught.value)
    assert server.query("SHOW CREATE TABLE shop.orders") == before
    assert server.query("SHOW TABLES FROM dm_meta LIKE 'ddl_tracker%'") == []
    server.execute("DELETE FROM dm_meta.subtask WHERE task = 'other'")
    if not clause.startswith(("DROP PRIMARY", "RENAME TO")):
        _run(session, FIRST, clause)
        assert server.query("SHOW CREATE TABLE shop.orders") != before


def test_a_table_that_another_task_merges_and_the_own_one_too(server: Database, session: Session) -> None:
    """The other task was stopped for good, and this one has its table now."""
    server.execute("ALTER TABLE shop.orders ADD v INT")
    _other_task(server, "orders_1")
    server.execute("UPDATE dm_meta.subtask SET source = 'mysql-01' WHERE task = 'other'")
    server.execute("UPDATE dm_meta.table_structure SET source = 'mysql-01' WHERE task = 'other'")
    _run(session, FIRST, "DROP v")
    assert _columns(server) == ["id"]
