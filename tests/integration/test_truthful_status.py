"""Tests query-status while the source, Spark or the target does not work: what is not known is not shown as in sync."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, cast

from shardmerge.proto import errors
from tests.support.cluster import Cluster, SubTask
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import Family

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
    cluster.start_task(family.task())
    cluster.wait_replicating("truth")
    cluster.wait_caught_up("truth", {"mysql-01": source})
    known = _only(cluster, "truth")
    assert (known["synced"], known["bytesBehind"], known["unknown"]) == (True, "0", "")

    _lag_of_long_ago(cluster, source, target)
    _row_lock(cluster, source, target)
    _frozen_executors(cluster)
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


def _frozen_executors(cluster: Cluster) -> None:
    pids = cluster.workers[0].spark_task_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: _is_unknown(_only(cluster, "truth"), "has not reported for"), "frozen lanes are not in sync")
    text = cluster.dmctl("query-status", "truth").json["sources"]
    assert "a sign of life" in text[0]["subTaskStatus"][0]["waitingFor"]
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


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
