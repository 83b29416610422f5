"""Tests that a statement which TiDB does not run as a whole runs in parts, each once, despite any kill (I6).

A kill is an exception that no code catches, and a new session after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import pytest

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.failpoints import MadeToFail
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect, send
from shardmerge.worker.core.mysql.lock_waits import (
    connection_number,
    read_holders,
    read_lock_wait,
    row_locks_visible,
)
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.execute.optimistic import STRICT
from shardmerge.worker.ddl.execute.run_once import (
    OneRun,
    finish_computed,
    join_subject,
    key_of_run,
    run_once,
    subject_of,
)
from shardmerge.worker.target.records import ddl_progress, divided_statements, subtask_record
from shardmerge.worker.target.records.schema import ensure_meta
from tests.support.database import Database
from tests.support.epochs import numbered
from tests.support.tidb import TiDB
from tests.support.wait import until

pytestmark = pytest.mark.tidb

META, TASK, FIRST, SECOND, LOCK = "dm_meta", "task", "mysql-01", "mysql-02", "g1"
TARGET = TargetTable("shop", "orders")
SWAP = "CHANGE a b INT, CHANGE b a BIGINT, DROP INDEX k, ADD INDEX k (b), ADD c INT AFTER a, ADD UNIQUE u (c)"
PARTS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made = TiDB(tmp_path_factory.mktemp("tidb_parts"), 34).start()
    with _session(made) as session:
        ensure_meta(session, META)
        for source in (FIRST, SECOND):
            subtask_record.take_over(session, SubtaskKey(META, TASK, source), numbered(1), "")
    yield made
    made.stop()


@contextmanager
def _session(server: Database) -> Generator[Session]:
    made = connect(Endpoint(server.host, server.port, server.user, server.password), Side.TARGET, name="target")
    try:
        yield made
    finally:
        made.close()


def _new_table(server: Database) -> None:
    server.execute(
        f"DELETE FROM {META}.statement_begun",
        "DROP DATABASE IF EXISTS shop",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, a INT, b BIGINT, KEY k (a))",
        "INSERT INTO shop.orders VALUES (1, 10, 20), (2, 11, 21)",
    )


def _run(server: Database, source: str, clauses: str = SWAP, *, run: str = "", computed: bool = False) -> None:
    with _session(server) as session:
        text, subject = f"ALTER TABLE {TARGET.quoted} {clauses}", join_subject(TARGET) if computed else ""
        one = OneRun([TARGET], text, STRICT, subject, run=run, computed=computed)
        run_once(session, SubtaskKey(META, TASK, source), 1, one, StopSignal(), lambda _: None)


def _killed_at(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], None]) -> str:
    """The moment at which ``act`` was killed: the one with this number; "": it has ended before."""
    seen: list[str] = []

    def hit(moment: str) -> None:
        seen.append(moment)
        if len(seen) == number:
            raise MadeToFail(moment)

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "hit", hit)
        try:
            act()
        except MadeToFail:
            return seen[-1]
    return ""


def _jobs(server: Database) -> int:
    """How many ALTER TABLE have run on the table."""
    [(count,)] = server.query(
        "SELECT COUNT(*) FROM information_schema.ddl_jobs WHERE db_name = 'shop' AND state = 'synced' "
        "AND job_type NOT LIKE '%subjob%' AND query LIKE 'ALTER TABLE%' AND table_id = "
        "(SELECT tidb_table_id FROM information_schema.tables WHERE table_schema = 'shop' AND table_name = 'orders')"
    )
    return int(str(count))


def _swapped(server: Database) -> None:
    """The table is as after the statement, and each part has run once."""
    rows = server.query("SELECT * FROM shop.orders ORDER BY id")
    columns = server.query("SELECT column_name FROM information_schema.columns WHERE table_schema = 'shop' "
                           "ORDER BY ordinal_position")  # fmt: skip
    indexes = server.query("SELECT index_name, column_name FROM information_schema.statistics "
                           "WHERE table_schema = 'shop' ORDER BY 1")  # fmt: skip
    assert [name for (name,) in columns] == ["id", "b", "a", "c"]
    assert rows == [(1, 10, 20, None), (2, 11, 21, None)]
    assert indexes == [("PRIMARY", "id"), ("k", "b"), ("u", "c")]
    assert _jobs(server) == PARTS


def _forgotten(server: Database, key: str) -> None:
    with _session(server) as session:
        assert ddl_progress.has_begun_statement(session, SubtaskKey(META, TASK, FIRST))
        # An earlier version reads this: it must not regard the statement as run.
        assert ddl_progress.read_begun(session, SubtaskKey(META, TASK, FIRST), key) is None
        ddl_progress.delete_begun(session, SubtaskKey(META, TASK, FIRST), key)
        assert not ddl_progress.has_begun_statement(session, SubtaskKey(META, TASK, FIRST))


def test_a_kill_at_each_moment(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    moments: list[str] = []
    while True:
        _new_table(server)
        moment = _killed_at(monkeypatch, len(moments) + 1, lambda: _run(server, FIRST))
        _run(server, FIRST)
        _swapped(server)
        _run(server, FIRST)
        _swapped(server)
        if not moment:
            break
        moments.append(moment)
    assert moments == ["ddl.divided", *["ddl.begun", "ddl.run", "ddl.part_recorded"] * PARTS]
    _forgotten(server, subject_of([TARGET]))


def test_another_owner_of_a_lock_continues(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    _new_table(server)
    assert _killed_at(monkeypatch, 6, lambda: _run(server, FIRST, run=LOCK)) == "ddl.run"
    _run(server, SECOND, SWAP.lower(), run=LOCK)
    _swapped(server)
    _run(server, FIRST, run=LOCK)
    _swapped(server)
    with _session(server) as session:
        assert divided_statements.begun_sources(session, META, TASK, key_of_run([TARGET], LOCK)) == {FIRST}
    _forgotten(server, key_of_run([TARGET], LOCK))


def test_another_source_finishes_a_schema_join(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    _new_table(server)
    _killed_at(monkeypatch, 3, lambda: _run(server, FIRST, "DROP INDEX k, ADD INDEX k (b)", computed=True))
    with _session(server) as session:
        finish_computed(session, SubtaskKey(META, TASK, SECOND), TARGET, STRICT, StopSignal())
        finish_computed(session, SubtaskKey(META, TASK, SECOND), TARGET, STRICT, StopSignal())
    assert _jobs(server) == 2
    assert server.query("SHOW INDEX FROM shop.orders WHERE Key_name = 'k' AND Column_name = 'b'")
    _run(server, SECOND, "DROP INDEX k, ADD INDEX k (a, b)", computed=True)
    assert _jobs(server) == 4
    _forgotten(server, join_subject(TARGET))


def test_a_part_that_is_refused(server: Database) -> None:
    """The error names the parts; when the data are corrected, the parts that are left run."""
    _new_table(server)
    server.execute("UPDATE shop.orders SET b = 20")
    clauses = "ADD c INT, ADD UNIQUE v (b, c), ADD UNIQUE w (b)"
    with pytest.raises(ShardmergeError) as refused:
        _run(server, FIRST, clauses)
    assert refused.value.spec is errors.ddl.DDL_PART_REFUSED
    values = refused.value.values
    assert values["done"] == "ALTER TABLE `shop`.`orders` ADD c INT"
    assert values["left"] == values["part"] == "ALTER TABLE `shop`.`orders` ADD UNIQUE v (b, c), ADD UNIQUE w (b)"
    assert values["errno"] == "1062"
    # The table's definition changes before the part runs: that does not show that it has run.
    server.execute("UPDATE shop.orders SET b = id", "ALTER TABLE shop.orders ADD d INT")
    _run(server, FIRST, clauses)
    _run(server, FIRST, clauses)
    names = server.query("SHOW INDEX FROM shop.orders WHERE Key_name IN ('v', 'w')")
    assert len(names) == 3
    _forgotten(server, subject_of([TARGET]))


def test_nothing_is_recorded_when_the_first_part_is_refused(server: Database) -> None:
    _new_table(server)
    with pytest.raises(ShardmergeError) as refused:
        _run(server, FIRST, "ADD a INT, ADD INDEX (a)")
    assert refused.value.spec is errors.ddl.DDL_REFUSED
    with _session(server) as session:
        assert not ddl_progress.has_begun_statement(session, SubtaskKey(META, TASK, FIRST))


def test_the_holder_of_a_row_lock(server: Database) -> None:
    _new_table(server)
    with _session(server) as holder, _session(server) as waiter, _session(server) as reader:
        send(holder, b"START TRANSACTION")
        send(holder, b"UPDATE shop.orders SET a = 5 WHERE id = 1")
        number = connection_number(waiter)
        thread = threading.Thread(target=send, args=(waiter, b"UPDATE shop.orders SET a = a + 1 WHERE id = 1"))
        thread.start()
        try:
            wait = until(lambda: read_lock_wait(reader, number, []), "the wait is seen", 60)
        finally:
            send(holder, b"ROLLBACK")
            thread.join()
        assert row_locks_visible(reader)
        assert (wait.kind, wait.table, wait.holders) == ("row lock", "`shop`.`orders`", (connection_number(holder),))
        [found] = read_holders(reader, wait.holders)
        assert (found.connection, found.user, found.command) == (wait.holders[0], server.user, "Sleep")
        assert read_lock_wait(reader, number, []) is None
