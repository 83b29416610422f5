"""Tests what query-status shows while the target has no space left: always the reason, whichever stage it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pymysql
import pytest

from tests.integration.ways_out.printed import errors_of
from tests.support.cluster import Cluster, SubTask
from tests.support.database import Database
from tests.support.disk import fill, small_disk
from tests.support.pair import KINDS
from tests.support.wait import until

pytestmark = pytest.mark.turns

_SPACE = ("--innodb-data-file-path=ibdata1:12M:autoextend:max:32M", "--innodb-file-per-table=0")
_TASK = """\
name: full
task-mode: all
target-database: {login}
mysql-instances:
  - {{source-id: mysql-01, block-allow-list: own}}
block-allow-list:
  own: {{do-dbs: [shard]}}
"""


def _rows(server: Database, table: str, first: int, count: int) -> None:
    for start in range(first, first + count, 50):
        rows = ", ".join(f"({number}, '{'x' * 2000}')" for number in range(start, start + 50))
        server.execute(f"INSERT INTO {table} VALUES {rows}")


def _has_reason(subtask: SubTask) -> bool:
    """Whether it shows the error: of the pause, of a retry, or of the run before the one that begins."""
    codes = [int(str(one["code"])) for one in errors_of(subtask.raw)]
    waiting = str(subtask.raw.get("waitingFor") or "")
    lanes = str(cast("dict[str, object]", subtask.raw.get("sync") or {}).get("lanes"))
    return 40025 in codes or "40025 target-storage-full" in waiting or "1114" in waiting or "40025" in lanes


@pytest.mark.parametrize("kind", KINDS)
def test_the_reason_is_shown_at_every_moment(
    kind: str, tmp_path: Path, make_server: Callable[..., Database], make_cluster: Callable[..., Cluster]
) -> None:
    make: Callable[..., Database] = KINDS[kind]
    source, cluster = make_server("source"), make_cluster(workers=1)
    target = make(tmp_path / "target", 102, _SPACE)
    try:
        _fill_and_free(source, target.start(), cluster)
    finally:
        target.stop()


def _fill_and_free(source: Database, target: Database, cluster: Cluster) -> None:
    cluster.create_source("mysql-01", source)
    source.execute(
        "CREATE DATABASE shard",
        "CREATE TABLE shard.t (id BIGINT PRIMARY KEY, v VARCHAR(2000)) DEFAULT CHARSET=latin1",
    )
    _rows(source, "shard.t", 1, 50)
    cluster.start_task(_TASK.format(login=target.login))
    cluster.wait_replicating("full")
    target.execute("CREATE TABLE shard.heavy (id BIGINT PRIMARY KEY, v VARCHAR(2000)) CHARACTER SET latin1")
    with pytest.raises(pymysql.MySQLError, match="is full"):
        _rows(target, "shard.heavy", 1, 40_000)
    _rows(source, "shard.t", 1001, 2000)
    seen: set[str] = set()

    def has_paused_twice() -> bool:
        """Whether the lanes have given up, and a further run has begun."""
        for subtask in cluster.subtasks("full").values():
            reason = _has_reason(subtask)
            # Lanes that have just begun have not met the error yet.
            assert reason or not seen or subtask.unit == "Sync", subtask.raw
            if reason:
                seen.add(f"{subtask.stage} {subtask.raw.get('epoch', '')}")
        return sum(one.startswith("Paused") for one in seen) > 1

    until(has_paused_twice, "a run has failed and the next one has begun", 300, every=0.05)
    target.execute("DROP TABLE shard.heavy")
    cluster.dmctl("resume-task", "full", check=False)
    cluster.wait_caught_up("full", {"mysql-01": source})
    statement = "SELECT COUNT(*), SUM(id), SUM(CRC32(v)) FROM shard.t"
    assert target.query(statement) == source.query(statement)
    cluster.dmctl("stop-task", "full")


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_waits_for_space(
    kind: str, tmp_path: Path, make_server: Callable[..., Database], make_cluster: Callable[..., Cluster]
) -> None:
    """The disk of its binlog is full: a server then waits with the COMMIT, and reports no error."""
    source, cluster = make_server("source"), make_cluster(workers=1)
    make: Callable[..., Database] = KINDS[kind]
    with small_disk(tmp_path / "disk", 24) as disk:
        options = (f"--log-bin={disk}/bin", *(("--performance-schema=ON",) if kind == "mysql" else ()))
        target = make(tmp_path / "target", 102, options)
        try:
            _fill_binlog_and_free(source, target.start(), cluster, disk)
        finally:
            target.stop()


def _fill_binlog_and_free(source: Database, target: Database, cluster: Cluster, disk: Path) -> None:
    cluster.create_source("mysql-01", source)
    source.execute("CREATE DATABASE shard", "CREATE TABLE shard.t (id BIGINT PRIMARY KEY, v VARCHAR(2000))")
    _rows(source, "shard.t", 1, 50)
    cluster.start_task(_TASK.format(login=target.login))
    cluster.wait_replicating("full")
    ballast = fill(disk, 16 << 10)
    _rows(source, "shard.t", 1001, 200)

    def is_named() -> bool:
        [subtask] = cluster.subtasks("full").values()
        waiting = str(subtask.raw.get("waitingFor") or "")
        return "[40025 target-storage-full]" in waiting and f"{target.host}:{target.port}" in waiting

    until(is_named, "the full disk is named", 30)
    ballast.unlink()
    cluster.wait_caught_up("full", {"mysql-01": source})
    statement = "SELECT COUNT(*), SUM(id), SUM(CRC32(v)) FROM shard.t"
    assert target.query(statement) == source.query(statement)
    cluster.dmctl("stop-task", "full")
