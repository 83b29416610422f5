"""Tests the printed way out of 40024: the target is read-only, for a moment or because a replica of it takes over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.relay_rig import Servers, servers
from tests.integration.ways_out.printed import Operator, Printed
from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.world import Family

__all__ = ["servers"]

pytestmark = pytest.mark.turns

NAME, SOURCE = "way_40024", "mysql-01"


def _file(family: Family, target: Database) -> str:
    """The task file with an account that a read-only server refuses."""
    root = f'user: {target.user}, password: "{target.password}"'
    login = target.login.replace(root, f'user: {NAME}, password: "now"')
    return family.task().replace(family.target.login, login)


def _change(source: Database, amount: int) -> None:
    shard, columns = f"{NAME}_01.order_01", "(customer, amount, state, token, created)"
    source.execute(
        f"UPDATE {shard} SET amount = {amount} WHERE id % 7 = 0",
        f"DELETE FROM {shard} ORDER BY id LIMIT 3",
        f"INSERT INTO {shard} {columns} VALUES ('c', {amount}, 'new', '', '2024-01-01')",
    )


def _read_only(operator: Operator, target: Database, source: Database, amount: int) -> Printed:
    target.execute("SET GLOBAL read_only = 1")
    _change(source, amount)
    printed = operator.stopped(40024, SOURCE)
    assert f"{target.host}:{target.port} is read-only" in printed.message
    return printed


def test_a_replica_of_the_target_takes_over(
    servers: Servers, make_server: Callable[..., Database], make_cluster: Callable[..., Cluster]
) -> None:
    """It lacks the last transactions, as a replica may: they are applied again, from its own checkpoint."""
    source, cluster = make_server("source"), make_cluster(workers=1)
    old, new = servers.server("old"), servers.server("new")
    servers.follow(new, old)
    old.execute(
        f"CREATE USER {NAME}@'127.0.0.1' IDENTIFIED BY 'now'",
        f"GRANT ALL ON dm_meta.* TO {NAME}@'127.0.0.1'",
        f"GRANT ALL ON {NAME}.* TO {NAME}@'127.0.0.1'",
    )
    before, after = (Family(NAME, ((SOURCE, source),), target) for target in (old, new))
    before.create(200)
    cluster.create_source(SOURCE, source)
    cluster.start_task(_file(before, old))
    operator = Operator(cluster, NAME, str(cluster.directory / f"{NAME}.task.yaml"))
    cluster.wait_replicating(NAME)
    _read_only(operator, old, source, 4)
    old.execute("SET GLOBAL read_only = 0")  # the task continues by itself
    cluster.wait_caught_up(NAME, {SOURCE: source})
    servers.caught_up(new, old)
    servers.detach(new)
    _change(source, 5)
    cluster.wait_caught_up(NAME, {SOURCE: source})
    printed = _read_only(operator, old, source, 6)
    operator.runs(printed, "stop-task")
    servers.promote(new)
    cluster.write(f"{NAME}.task.yaml", _file(after, new))
    operator.runs(printed, "start-task")
    cluster.wait_replicating(NAME)
    _change(source, 7)
    cluster.wait_caught_up(NAME, {SOURCE: source})
    assert after.verdict().differences == 0, after.verdict()
    assert before.verdict().differences > 0
    cluster.dmctl("stop-task", NAME)
