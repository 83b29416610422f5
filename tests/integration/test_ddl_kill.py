"""Tests that a statement runs at the target once, after a kill or freeze of any process at any moment (I3, I6, I9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.cluster import Cluster
from tests.support.ddl_kills import at_every_moment, kill_at_moments_of_statements
from tests.support.judge import Shard, Target, compare
from tests.support.kills import Kills
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import World

# `bash tests/run.sh grid` combines all victims with all moments of all statements; here each moment at which the target
# is changed has one victim. The moments before and after it are those of test_filtered_ddl_kill.py.
_KILLS: dict[str, Kills] = {
    "alter": {"ddl.begun": "target", "ddl.run": "worker"},
    "delete": {"ddl.deleting": "jvm"},
    "create": {"ddl.made": "jvm"},
    "swap": {"ddl.swap": "worker"},
}


def test_kill_at_moments_of_statements(world: World) -> None:
    kill_at_moments_of_statements(world, "mixed", _KILLS)


@pytest.mark.grid
@pytest.mark.parametrize("victim", ["target", "worker", "jvm"])
def test_kill_at_every_moment_of_a_statement(world: World, victim: str) -> None:
    kill_at_moments_of_statements(world, victim, at_every_moment(victim))


def _alone(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> tuple[MariaDB, MariaDB, Cluster]:
    """Provide one source, replicating ``d.t``, and a worker without a source."""
    source, target = make_server("source"), make_server("target")
    cluster = make_cluster(workers=2)
    source.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, n INT)", "INSERT INTO d.t VALUES (1, 1)")
    cluster.create_source("mysql-01", source)
    cluster.start_task(
        "name: one\ntask-mode: all\nmeta-schema: dm_meta\n"
        f"target-database: {{host: {target.host}, port: {target.port}, user: root, password: ''}}\n"
        "mysql-instances:\n  - source-id: mysql-01\n    block-allow-list: one\n"
        "block-allow-list:\n  one: {do-dbs: [d]}\n"
    )
    cluster.wait_replicating("one")
    return source, target, cluster


def _judge(source: MariaDB, target: MariaDB, cluster: Cluster) -> None:
    cluster.wait_caught_up("one", {"mysql-01": source})
    verdict = compare([Shard(source.connect, "d", "t")], Target(target.connect, "d", "t"))
    assert verdict.differences == 0, verdict
    columns = "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = 'd'"
    assert source.query(columns) == target.query(columns)


def _runs(target: MariaDB, change: str) -> int:
    """Return how often the target has run this ALTER of the merged table."""
    statement, found = f"ALTER TABLE `d`.`t` {change}", 0
    for file, *_ in target.query("SHOW BINARY LOGS"):
        events = target.query(f"SHOW BINLOG EVENTS IN '{file}'")
        found += sum(statement in str(info) for (_, _, kind, _, _, info) in events if kind == "Query")
    return found


def test_a_worker_that_freezes_before_it_runs_a_statement_runs_nothing_later(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> None:
    source, target, cluster = _alone(make_server, make_cluster)
    frozen = cluster.worker_of("mysql-01")
    cluster.hooks.hold("ddl.begun")
    source.execute(
        "ALTER TABLE d.t ADD COLUMN x INT DEFAULT 1",
        "INSERT INTO d.t VALUES (2, 2, 2)",
        "ALTER TABLE d.t DROP COLUMN x",
        "INSERT INTO d.t VALUES (3, 3)",
    )
    cluster.hooks.reached("ddl.begun")
    frozen.freeze()
    try:
        until(lambda: cluster.worker_of("mysql-01") is not frozen, "the other worker takes the source over")
        cluster.hooks.release("ddl.begun")
        _judge(source, target, cluster)
    finally:
        frozen.thaw()
    log = frozen.log
    until(lambda: b"lease lost" in log.read_bytes(), "the frozen one finds itself without its lease")
    source.execute("INSERT INTO d.t VALUES (4, 4)")
    _judge(source, target, cluster)
    assert _runs(target, "ADD COLUMN x") == 1
    assert _runs(target, "DROP COLUMN x") == 1


def test_a_statement_that_waits_at_the_target_is_paused_and_resumed(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> None:
    source, target, cluster = _alone(make_server, make_cluster)
    held = target.connect("d")
    with held.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM t")
    source.execute("ALTER TABLE d.t ADD COLUMN x INT DEFAULT 1", "INSERT INTO d.t VALUES (2, 2, 2)")

    def waits() -> bool:
        shown = cluster.dmctl("query-status", "one", check=False).text
        return "ADD COLUMN x" in shown

    until(waits, "query-status says for what the task waits")
    cluster.dmctl("pause-task", "one")
    cluster.wait_paused("one")
    cluster.dmctl("resume-task", "one")
    until(waits, "it waits again")
    held.close()
    _judge(source, target, cluster)
    assert _runs(target, "ADD COLUMN x") == 1
