"""How a wait for a lock is shown."""

from __future__ import annotations

from shardmerge.worker.core.mysql.lock_waits import LockWait


def test_it_names_the_lock_the_table_and_the_connections() -> None:
    assert LockWait("row lock", "`a`.`b`", (7,)).shown == (
        "a row lock of `a`.`b`, which connection 7 of the target may hold"
    )
    many = LockWait("metadata lock", "`a`.`b`", (7, 8, 9, 10)).shown
    assert many == "a metadata lock of `a`.`b`, which connections 7, 8, 9 and 1 more of the target may hold"


def test_without_a_holder_it_reports_why() -> None:
    wait = LockWait("metadata lock", "", (), "the account may not see who holds it")
    assert wait.shown == "a metadata lock (the account may not see who holds it)"
