"""Tests query-status while the source, Spark or the target does not work: what is not known is not shown as in sync."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pymysql
import pytest

from shardmerge.proto import errors
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.execute.run_once import join_subject
from tests.support.cluster import Cluster, SubTask
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import Family

pytestmark = pytest.mark.spark

COLUMNS = "(id, customer, amount, state, token, created)"


def _sync(subtask: SubTask) -> dict[str, Any]:
    return cast("dict[str, Any]", subtask.raw["sync"])


def _only(cluster: Cluster, task: str) -> dict[str, Any]:
    [subtask] = cluster.subtasks(task).values()
    return _sync(subtask)


def _is_unknown(sync: dict[str, Any], reason: str) -> bool:
    """Whether nothing claims to be known, and the reason is given."""
    figures = [sync[name] for name in ("bytesBehind", "lagMs", "oldestMs", "secondsBehindMaster")]
    return reason in sync["unknown"] and sync["synced"] is False and figures == [None] * 4


def test_what_is_not_known_is_not_shown_as_in_sync(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> None:
    source, target = make_server("source"), make_server("target")
    source.execute("CREATE USER dm IDENTIFIED BY ''", "GRANT ALL ON *.* TO dm")
    cluster = make_cluster(workers=1)
    cluster.create_source("mysql-01", source, user="dm")
    family = Family("truth", (("mysql-01", source),), target)
    family.create(100)
    cluster.start_task(family.task(extra="shard-mode: optimistic\n"))
    cluster.wait_replicating("truth")
    cluster.wait_caught_up("truth", {"mysql-01": source})
    known = _only(cluster, "truth")
    assert (known["synced"], known["bytesBehind"], known["unknown"]) == (True, "0", "")

    _lag_of_long_ago(cluster, source, target)
    _row_lock(cluster, source, target)
    _statement_locks(cluster, source, target)
    _frozen_executors(cluster)
    _killed_spark(cluster, source, target)
    cluster.wait_caught_up("truth", {"mysql-01": source})
    cluster.dmctl("pause-task", "truth")
    assert _is_unknown(_only(cluster, "truth"), "it is paused")
    cluster.dmctl("resume-task", "truth")
    cluster.wait_caught_up("truth", {"mysql-01": source})
    _locked_out(cluster, source)
    cluster.wait_caught_up("truth", {"mysql-01": source})
    assert family.verdict().differences == 0
    cluster.stop()


def _lag_of_long_ago(cluster: Cluster, source: MariaDB, target: MariaDB) -> None:
    """A transaction waits for three seconds at the target; some seconds later that is no longer the present lag."""
    connection = target.connect()
    with connection.cursor() as cursor:
        number = _number(cursor)
        cursor.execute("LOCK TABLES truth.orders READ")
        source.execute(f"INSERT INTO truth_01.order_01 {COLUMNS} VALUES (9001, 'one', 1, 'new', '', '2024-01-01')")
        until(lambda: (_only(cluster, "truth")["oldestMs"] or 0) > 3000, "the row is late")
        shown = "a metadata lock of `truth`.`orders`"
        until(lambda: shown in _waits(cluster), "the lock and its table are named")
        assert "INSTALL SONAME 'metadata_lock_info'" in _waits(cluster)
        target.execute("INSTALL SONAME 'metadata_lock_info'")
        holder = f"{shown}, which connection {number} of the target may hold"
        until(lambda: holder in _waits(cluster), "its holder is named")
        cursor.execute("UNLOCK TABLES")
    connection.close()
    until(lambda: _only(cluster, "truth")["lagMs"] > 3000, "the lag of the row is shown")
    until(lambda: _only(cluster, "truth")["lagMs"] == 0.0, "the lag is the present one", 60)
    assert _only(cluster, "truth")["synced"] is True


def _waits(cluster: Cluster) -> str:
    [subtask] = cluster.subtasks("truth").values()
    return str(subtask.raw["waitingFor"])


def _number(cursor: Any) -> int:
    """Return the number of the cursor's connection at the server."""
    cursor.execute("SELECT CONNECTION_ID()")
    return int(cursor.fetchone()[0])


def _row_lock(cluster: Cluster, source: MariaDB, target: MariaDB) -> None:
    connection = target.connect()
    with connection.cursor() as cursor:
        number = _number(cursor)
        cursor.execute("BEGIN")
        cursor.execute("UPDATE truth.orders SET amount = 3 WHERE customer = 'one'")
        source.execute("UPDATE truth_01.order_01 SET amount = 5 WHERE id = 9001")
        shown = f"a row lock of `truth`.`orders`, which connection {number} of the target may hold"
        until(lambda: shown in _waits(cluster), "the lock, its table and its holder are named")
        cursor.execute("ROLLBACK")
    connection.close()
    until(lambda: not _waits(cluster), "nothing is waited for")


def _statement_locks(cluster: Cluster, source: MariaDB, target: MariaDB) -> None:
    """A sharding DDL waits at the target: for a transaction that has read the table, and for the server's lock that
    another session holds."""
    reader = target.connect()
    with reader.cursor() as cursor:
        number = _number(cursor)
        cursor.execute("BEGIN")
        cursor.execute("SELECT COUNT(*) FROM truth.orders")
        source.execute("ALTER TABLE truth_01.order_01 ADD COLUMN extra INT")
        shown = f"it waits for a metadata lock of `truth`.`orders`, which connection {number} of the target may hold"
        until(lambda: shown in _waits(cluster), "the lock, its table and its holder are named")
        assert "the target to run: ALTER TABLE `truth`.`orders`" in _waits(cluster)
        cursor.execute("ROLLBACK")
    reader.close()
    until(lambda: not _waits(cluster), "nothing is waited for")

    holder = target.connect()
    with holder.cursor() as cursor:
        number = _number(cursor)
        name = f"shardmerge.{join_subject(TargetTable('truth', 'orders'))}"
        cursor.execute("SELECT GET_LOCK(%s, 0)", (name,))
        # An idle holder is ended: this one is busy.
        busy = threading.Thread(target=_sleep, args=(cursor,), daemon=True)
        busy.start()
        source.execute("ALTER TABLE truth_01.order_02 ADD COLUMN extra INT")
        shown = f"the lock '{name}' of statements on `truth`.`orders`, which connection {number} of the target holds"
        until(lambda: shown in _waits(cluster), "the lock, its table and its holder are named")
        assert _only(cluster, "truth")["synced"] is False
        target.execute(f"KILL QUERY {number}")
        busy.join()
    holder.close()
    until(lambda: not _waits(cluster), "nothing is waited for")


def _sleep(cursor: Any) -> None:
    with suppress(pymysql.err.OperationalError):  # MariaDB answers with an error when the statement is ended
        cursor.execute("SELECT SLEEP(60)")


def _frozen_executors(cluster: Cluster) -> None:
    pids = cluster.workers[0].spark_task_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: _is_unknown(_only(cluster, "truth"), "has not reported for"), "frozen lanes are not in sync")
    text = cluster.dmctl("query-status", "truth").json["sources"]
    assert "a sign of life" in text[0]["subTaskStatus"][0]["waitingFor"]
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _killed_spark(cluster: Cluster, source: MariaDB, target: MariaDB) -> None:
    """The lanes' processes are killed, then the JVM of Spark: a row that is not at the target is never in sync."""
    worker = cluster.workers[0]
    for number, pids in enumerate((worker.spark_task_pids, lambda: [worker.jvm_pid()])):
        cluster.wait_caught_up("truth", {"mysql-01": source})
        for pid in pids():
            os.kill(pid, signal.SIGKILL)
        source.execute(
            f"INSERT INTO truth_01.order_01 {COLUMNS} VALUES ({9100 + number}, 'k{number}', 1, 'new', '', '2024-01-01')"
        )
        name = f"k{number}"
        until(lambda name=name: _has_arrived(cluster, target, name), "the row arrives", 120)


def _has_arrived(cluster: Cluster, target: MariaDB, customer: str) -> bool:
    """Whether the target has the row; if not, the status that was read before must not show the task as in sync. A
    worker that restarts may be unreachable, but its answer is never an internal error."""
    answer = cluster.dmctl("query-status", "truth", check=False)
    assert f"[{errors.master.INTERNAL.code} " not in answer.text, answer.text
    arrived = target.query(f"SELECT COUNT(*) FROM truth.orders WHERE customer = '{customer}'") != [(0,)]
    for source in answer.json["sources"]:
        for subtask in source["subTaskStatus"]:
            sync = subtask.get("sync")
            assert arrived or not sync or not (sync["synced"] or sync["bytesBehind"] == "0"), answer.text
    return arrived


def _locked_out(cluster: Cluster, source: MariaDB) -> None:
    """The account has another password: at once nothing is in sync, also before the task stops with the error."""
    source.execute("ALTER USER dm IDENTIFIED BY 'other'")
    for number, user in source.query("SELECT ID, USER FROM information_schema.PROCESSLIST"):
        if user == "dm":
            source.execute(f"KILL {number}")

    def stopped() -> bool:
        [subtask] = cluster.subtasks("truth").values()
        sync = _sync(subtask)
        if not subtask.errors:
            return False
        assert subtask.errors[0][0] == errors.relay.ACCESS_DENIED.code
        return _is_unknown(sync, f"error {errors.relay.ACCESS_DENIED.code}")

    until(stopped, "the error has stopped the subtask, and its progress is not known")
    relay = cluster.relay_status("mysql-01")
    assert relay is not None
    assert (relay["relayCatchUpMaster"], bool(relay["unknown"])) == (False, True)
    source.execute("ALTER USER dm IDENTIFIED BY ''")
    cluster.dmctl("resume-task", "truth")
