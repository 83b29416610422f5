"""Tests `relay-binlog-name` and `relay-binlog-gtid`: a source's relay log begins there before any task does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2 as config
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.daemon.source.source_runner import begin_relay, relay_start
from tests.integration.relay_rig import Servers
from tests.support.cluster import Cluster, Json
from tests.support.pair import KINDS
from tests.support.wait import until

pytestmark = pytest.mark.turns


@pytest.fixture(params=list(KINDS))
def servers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Servers]:
    made = Servers(tmp_path, str(request.param))
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("given", "by_gtid", "expected"),
    [
        (SourcePosition("", 0), False, None),
        (SourcePosition("b.000002", 4), False, SourcePosition("b.000002", 4)),
        (SourcePosition("b.000002", 4, "0-1-2"), False, SourcePosition("b.000002", 4)),
        (SourcePosition("b.000002", 4, "0-1-2"), True, SourcePosition("", 0, "0-1-2")),
        (SourcePosition("", 0, "0-1-2"), False, SourcePosition("", 0, "0-1-2")),
    ],
)
def test_which_place_is_meant(given: SourcePosition, by_gtid: bool, expected: SourcePosition | None) -> None:
    assert relay_start(config.SourceConfig(relay_start=given.to_proto(), enable_gtid=by_gtid)) == expected


def test_a_log_that_has_begun_stays(servers: Servers) -> None:
    source = servers.server("source")
    source.execute("CREATE DATABASE d", "FLUSH BINARY LOGS", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    relay = servers.relay(source)
    second = config.SourceConfig(relay_start=SourcePosition("mysql-bin.000002", 4).to_proto())
    begin_relay(relay, second)
    relay.start()
    until(lambda: relay.head().position.reaches(SourcePosition(*source.binlog_end())), "the end is fetched")
    assert relay.first().position.file == "mysql-bin.000002"
    relay_id = relay.relay_id
    begin_relay(relay, config.SourceConfig(relay_start=SourcePosition("mysql-bin.000001", 4).to_proto()))
    assert relay.relay_id == relay_id
    # A task that needs earlier events moves the begin back.
    assert relay.ensure_from(SourcePosition("mysql-bin.000001", 4))


def test_a_place_that_is_none_stops_nothing(servers: Servers) -> None:
    relay = servers.relay(servers.server("source"))
    begin_relay(relay, config.SourceConfig(source_id="s", relay_start=SourcePosition("", 0, "nonsense").to_proto()))
    assert relay.relay_id == ""


def test_a_source_without_tasks_is_fetched_from_there(servers: Servers, tmp_path: Path) -> None:
    source = servers.server("source")
    source.execute(
        "CREATE DATABASE d", "FLUSH BINARY LOGS", "CREATE TABLE d.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS"
    )
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.create_source("s1", source, extra="relay-binlog-name: mysql-bin.000002\n")
        found = until(lambda: _fetched(cluster, source.binlog_end()[0]), "the relay log is there")
        assert found["stage"] == "Running"


def _fetched(cluster: Cluster, file: str) -> Json | None:
    """Return the relay log's status once it has reached ``file``; None while the worker does not answer in time."""
    status = cluster.relay_status("s1")
    return status if status and file in str(status.get("relayBinlog")) else None
