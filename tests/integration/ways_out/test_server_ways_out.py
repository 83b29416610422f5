"""Tests the printed ways out of errors of a source that is read from a server which does not continue the former one.

Each situation leaves the source at the first server. The last one writes to its replica.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager

import pytest

from tests.integration.replicated_rig import SOURCE, Replicated, module_replicated, replicated
from tests.integration.ways_out.running import refused, started
from tests.support.cluster import parse_position
from tests.support.database import Database
from tests.support.mysql import MySQL
from tests.support.wait import until

__all__ = ["module_replicated", "replicated"]

OTHER, THIRD = "mysql-02", "mysql-03"


def test_a_prepared_transaction_is_in_a_purged_binlog(replicated: Replicated) -> None:
    """20016: an XA transaction was prepared before the task began, and is committed while it runs."""
    server, name = replicated.old, "way_20016"
    family = replicated.family(name, server)
    family.create(200)
    server.execute(
        "XA START 'x'", f"UPDATE {name}_01.order_02 SET amount = 7 WHERE id <= 20", "XA END 'x'", "XA PREPARE 'x'"
    )
    server.purge()
    running = started(replicated, name, server, rows=0)
    server.execute("XA COMMIT 'x'")
    running.insert(server, "later")
    printed = running.operator.stopped(20016, SOURCE)
    assert server.query("XA RECOVER") == []
    running.copied_again(printed, server)


def test_a_restored_backup(replicated: Replicated) -> None:
    """20050: the source is lost, and a backup was restored on another machine, with the same server id. MySQL, whose
    servers have another identity too, gives it another one: 20055."""
    servers, cluster = replicated.servers, replicated.cluster
    lost = servers.server("lost", "--server-id=401")
    restored = servers.server("restored", "--server-id=401")
    cluster.create_source(OTHER, lost)
    running = started(replicated, "way_20050", lost, source=OTHER)
    running.family_at(restored).create(150)
    path = running.file_of(restored)
    code = 20050 if lost.flavor == "mariadb" else 20055
    printed = refused(cluster.dmctl("operate-source", "update", path, check=False), code)
    running.copied_again(printed, restored, source_file=path)
    cluster.dmctl("operate-source", "stop", OTHER)


@pytest.mark.grid
def test_servers_without_gtids(replicated: Replicated) -> None:
    """20053 and 20007: another server is to be the source, and later another one has the address of the source."""
    folder = replicated.servers.directory
    one, two = (MySQL(folder / f"plain-{number}", 301 + number, gtid=False).start() for number in (1, 2))
    cluster = replicated.cluster
    try:
        cluster.create_source(THIRD, one)
        running = started(replicated, "way_20053", one, source=THIRD)
        running.family_at(two).create(150)
        path = running.file_of(two)
        printed = refused(cluster.dmctl("operate-source", "update", path, check=False), 20053)
        running.copied_again(printed, two, source_file=path)
        running = started(replicated, "way_20007", two, source=THIRD)
        running.family_at(one).create(150)
        _exchange_addresses(one, two)
        printed = running.operator.stopped(20007, THIRD)
        # The former server is there, at another address.
        running.operator.runs(printed, "operate-source update", source_file=running.file_of(two))
        running.insert(two, "later")
        running.judge(two)
        # It is lost.
        _exchange_addresses(one, two)
        printed = running.operator.stopped(20007, THIRD)
        running.copied_again(printed, one, source_file=running.file_of(one))
        cluster.dmctl("operate-source", "stop", THIRD)
    finally:
        for server in (one, two):
            server.stop()


def _exchange_addresses(one: Database, two: Database) -> None:
    for server in (one, two):
        server.stop()
    one.port, two.port = two.port, one.port
    for server in (one, two):
        server.start()


def _machine_lost(replicated: Replicated, moment: str) -> None:
    """Kill the worker that has the source with its lanes, which are held at ``moment``: another worker takes over,
    without its relay log."""
    cluster = replicated.cluster
    worker = cluster.worker_of(SOURCE)
    worker.kill_all()
    cluster.hooks.release(moment)
    until(lambda: cluster.worker_of(SOURCE) is not worker, "the spare worker has the source", 300)
    worker.start(wait=False)


@contextmanager
def _committed_before(source: Database, replica: Database, locked: str, statement: str) -> Generator[None]:
    """Run ``statement`` at the source after the block's. The replica commits it before those that need ``locked``, a
    row. MySQL's replica keeps the order while one of its workers waits, so the statement is run there by hand, under
    the identity that the source gave to it."""
    if replica.flavor == "mysql":
        replica.execute("STOP REPLICA")
        yield
        executed = "SELECT @@GLOBAL.gtid_executed"
        earlier = source.query(executed)[0][0]
        source.execute(statement)
        identity = source.query(f"SELECT GTID_SUBTRACT(({executed}), '{earlier}')")[0][0]
        replica.execute(f"SET gtid_next = '{identity}'", statement, "SET gtid_next = AUTOMATIC", "START REPLICA")
        return
    with closing(replica.connect()) as connection, connection.cursor() as cursor:
        replica.execute("STOP SLAVE", "SET GLOBAL slave_parallel_threads = 4", "START SLAVE")
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {locked} FOR UPDATE")
        yield
        source.execute("SET SESSION gtid_domain_id = 1", statement)
        table, condition = statement.split()[1], statement[statement.index("WHERE") :]
        row = f"SELECT * FROM {table} {condition}"
        until(lambda: replica.query(row) == source.query(row), "the replica has the second transaction")
        cursor.execute("ROLLBACK")


def test_a_replica_has_another_order(replicated: Replicated) -> None:
    """20013: source and worker are lost together while its lanes are at different transactions, and the replica has
    committed these in another order."""
    name = "way_20013"
    running, cluster = started(replicated, name), replicated.cluster
    old, new = replicated.old, replicated.new
    replicated.servers.caught_up(new, old)
    second = f"UPDATE {name}_01.order_02 SET amount = 8 WHERE id = 2"
    with _committed_before(old, new, f"{name}_01.order_01 WHERE id = 1", second):
        cluster.hooks.hold("lane0.before_commit")
        old.execute(f"UPDATE {name}_01.order_01 SET amount = 9")
        _another_lane_is_at(replicated, name, old.binlog_end())
        cluster.dmctl("pause-relay", "-s", SOURCE)
    replicated.servers.caught_up(new, old)
    _machine_lost(replicated, "lane0.before_commit")
    path = running.file_of(new)
    cluster.dmctl("operate-source", "update", path)
    cluster.dmctl("resume-relay", "-s", SOURCE, check=False)
    printed = running.operator.stopped(20013, SOURCE)
    running.copied_again(printed, new)
    cluster.dmctl("operate-source", "update", running.file_of(old))


def _another_lane_is_at(replicated: Replicated, name: str, place: tuple[str, int]) -> None:
    query = f"SELECT source_file, source_pos FROM dm_meta.lane_checkpoint WHERE task = '{name}'"
    end = parse_position(f"({place[0]}, {place[1]})")

    def reached() -> bool:
        found = {parse_position(f"({file}, {pos})") for file, pos in replicated.target.query(query)}
        return len(found) > 1 and max(found) >= end

    until(reached, "a lane has committed what another one has not", 60)
