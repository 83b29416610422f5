"""Tests the printed way out of a new source that cannot be used (60209): nothing is stored, and no task is paused."""

from __future__ import annotations

from tests.integration.ways_out.printed import Operator, Printed
from tests.integration.ways_out.running import refused
from tests.support.cluster import source_yaml
from tests.support.ports import free_port
from tests.support.world import World

_AGAIN = ["operate-source create <source-file>"]


def _created(operator: Operator, printed: Printed, path: str) -> Printed:
    """Return the error of the printed command, which must fail."""
    return refused(operator.runs(printed, "operate-source create", source_file=path, check=False), 60209)


def test_a_new_source_is_created_after_what_was_wrong_is_corrected(world: World) -> None:
    """Its address, its password and its privileges are wrong, one after the other."""
    (_, server), cluster = world.sources[0], world.cluster
    server.execute("CREATE USER created@'127.0.0.1' IDENTIFIED BY 'right'")
    operator = Operator(cluster, "new", "")
    text = source_yaml("new-01", server, "created", "wrong")
    away = cluster.write("new.yaml", text.replace(f"port: {server.port}", f"port: {free_port()}"))
    printed = refused(cluster.dmctl("operate-source", "create", away, check=False), 60209)
    assert "[20102 source-unreachable]" in printed.message and printed.commands() == _AGAIN
    printed = _created(operator, printed, cluster.write("new.yaml", text))
    assert "[20101 source-access-denied]" in printed.message and printed.commands() == _AGAIN
    path = cluster.write("new.yaml", source_yaml("new-01", server, "created", "right"))
    printed = _created(operator, printed, path)
    assert "[12017] replication_privilege" in printed.message and printed.commands() == _AGAIN
    server.execute(printed.way_out.partition("\n")[0])
    operator.runs(printed, "operate-source create", source_file=path)
    cluster.dmctl("operate-source", "stop", "new-01")
    server.execute("DROP USER created@'127.0.0.1'")
