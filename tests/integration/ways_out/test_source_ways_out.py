"""Tests the printed ways out of errors of a source's server: another server, a lost binlog, a missing privilege."""

from __future__ import annotations

from tests.integration.replicated_rig import SOURCE, Replicated, given_over, module_replicated, replicated
from tests.integration.ways_out.printed import Operator
from tests.integration.ways_out.running import refused, started
from tests.support.cluster import source_yaml
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["module_replicated", "replicated"]

# MySQL purges by another statement than MariaDB, and knows by GTID what it lacks. The tests run in this order: the last
# one promotes the replica.


def test_a_privilege_is_revoked(replicated: Replicated) -> None:
    """20103: the account of the source may no longer read the binlog."""
    running = started(replicated, "way_20103")
    server, cluster = replicated.old, replicated.cluster
    server.execute("CREATE USER reader IDENTIFIED BY ''", "GRANT ALL ON *.* TO reader")
    cluster.dmctl("operate-source", "update", running.file_of(server, "reader"))
    cluster.wait_caught_up("way_20103", {SOURCE: server})
    server.execute("REVOKE REPLICATION SLAVE ON *.* FROM reader")
    server.kill_threads("reader")
    running.insert(server, "later")
    printed = running.operator.stopped(20103, SOURCE)
    server.execute("GRANT REPLICATION SLAVE ON *.* TO reader")
    running.operator.runs(printed, "resume-task")
    replicated.judge("way_20103", server)
    cluster.dmctl("operate-source", "update", running.file_of(server))
    cluster.dmctl("stop-task", "way_20103")


def test_the_source_is_moved_while_its_history_is_copied(replicated: Replicated) -> None:
    """20052: a task of the source is busy."""
    running = started(replicated, "way_20052", hold="snapshot.before_commit")
    replicated.servers.caught_up(replicated.new, replicated.old)
    path = running.file_of(replicated.new)
    printed = refused(replicated.cluster.dmctl("operate-source", "update", path, check=False), 20052)
    replicated.cluster.hooks.release_all()
    running.operator.runs(printed, "stop-task")
    running.operator.runs(printed, "operate-source update", source_file=path)
    running.operator.runs(printed, "start-task")
    replicated.cluster.wait_replicating("way_20052")
    # Its relay log has no event of the new server yet. Another worker, without a relay log, continues all the same.
    given_over(replicated)
    replicated.cluster.wait_replicating("way_20052")
    _change_by_replication(replicated, "way_20052")
    replicated.judge("way_20052", replicated.new)
    replicated.cluster.dmctl("stop-task", "way_20052")
    replicated.cluster.dmctl("operate-source", "update", running.file_of(replicated.old))


def test_the_source_is_moved_while_mixed_rows_are_copied(replicated: Replicated) -> None:
    """20052, where nothing separates the rows of the shard tables: the commands copy the whole task again."""
    name = "way_20052_mixed"
    cluster, family = replicated.cluster, replicated.family(name, replicated.old)
    family.create(0)
    for table, first in ((1, 1), (2, 1001)):
        values = ", ".join(f"({first + number}, 'c', 1, 'new', '', '2024-01-01')" for number in range(50))
        replicated.old.execute(
            f"INSERT INTO {name}_01.order_0{table} (id, customer, amount, state, token, created) VALUES {values}"
        )
    text = family.task()
    text = text.partition("column-mappings:")[0].replace("    column-mapping-rules: [ids-1]\n", "")
    operator = Operator(cluster, name, cluster.write(f"{name}.task.yaml", text))
    cluster.hooks.hold("snapshot.before_commit")
    cluster.start_task(text)
    cluster.hooks.reached("snapshot.before_commit")
    replicated.servers.caught_up(replicated.new, replicated.old)
    path = cluster.write("source.yaml", source_yaml(SOURCE, replicated.new))
    printed = refused(cluster.dmctl("operate-source", "update", path, check=False), 20052)
    cluster.hooks.release_all()
    assert "--remove-meta -s" not in printed.way_out
    assert f"empty {name}.orders at the target" in printed.way_out
    operator.runs(printed, "stop-task")
    operator.runs(printed, "operate-source update", source_file=path)
    replicated.target.execute(f"DELETE FROM {name}.orders")
    operator.runs(printed, "start-task")
    cluster.wait_replicating(name)
    cluster.wait_caught_up(name, {SOURCE: replicated.new})
    [(count, total)] = replicated.target.query(f"SELECT COUNT(*), SUM(id) FROM {name}.orders")
    assert (int(str(count)), int(str(total))) == (100, sum(range(1, 51)) + sum(range(1001, 1051)))
    cluster.dmctl("stop-task", name)
    cluster.dmctl("operate-source", "update", cluster.write("source.yaml", source_yaml(SOURCE, replicated.old)))


def _change_by_replication(replicated: Replicated, name: str) -> None:
    """Change rows at the old server, and wait until its replica has the change."""
    replicated.old.execute(f"UPDATE {name}_01.order_02 SET amount = 7 WHERE id <= 20")
    changed = f"SELECT COUNT(*) FROM {name}_01.order_02 WHERE amount = 7 AND id <= 20"
    until(lambda: replicated.new.query(changed) == [(20,)], "the replica has the change")


def test_the_binlog_is_purged(replicated: Replicated) -> None:
    """20001, or 20011 if the relay continues by GTIDs: the source has removed what the task has not read yet."""
    running = started(replicated, "way_purged")
    server, cluster = replicated.old, replicated.cluster
    cluster.dmctl("pause-relay", "-s", SOURCE)
    until(lambda: not _reads(replicated, server), "the dump has ended")
    running.insert(server, "purged")
    server.execute("DELETE FROM way_purged_01.order_02 WHERE id % 5 = 0")
    replicated.servers.caught_up(replicated.new, server)
    server.purge()
    cluster.dmctl("resume-relay", "-s", SOURCE, check=False)
    printed = running.operator.stopped(20001, SOURCE, or_code=20011)
    running.copied_again(printed, server)


def _reads(replicated: Replicated, server: Database) -> bool:
    """Whether the worker reads the server's binlog; its replica does, too."""
    return len(server.dump_threads()) > 1


def test_a_replica_with_writes_of_its_own(replicated: Replicated) -> None:
    """20051: the source is lost, and its replica has rows of its own."""
    running = started(replicated, "way_20051")
    old, new = replicated.old, replicated.new
    replicated.servers.caught_up(new, old)
    running.insert(new, "own")
    _change_by_replication(replicated, "way_20051")
    replicated.cluster.wait_caught_up("way_20051", {SOURCE: old})
    path = running.file_of(new)
    printed = refused(replicated.cluster.dmctl("operate-source", "update", path, check=False), 20051)
    running.copied_again(printed, new, source_file=path)
    replicated.servers.promote(new)
