"""Tests which of two statements on one target has run when the first one's process was killed before it sent it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.execute.run_once import OneRun, digest_of, key_of_run, run_once
from shardmerge.worker.target.records import ddl_progress, executed_locks, subtask_record
from shardmerge.worker.target.records.ddl_progress import Begun
from shardmerge.worker.target.records.executed_locks import LockRun
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
