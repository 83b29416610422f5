"""Tests that faults of real daemons make alerts fire in a real Prometheus, and that none fires without a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from deploy.grafana.dashboards import DASHBOARDS
from tests.support.cluster import Cluster
from tests.support.disk import fill, small_disk
from tests.support.mariadb import MariaDB
from tests.support.prometheus import Prometheus
from tests.support.wait import until
from tests.support.world import Family, World
from tests.support.writer import ShardTable, Writer

pytestmark = [pytest.mark.grid, pytest.mark.spark]
_TASK = "alerted"
# Each worker has a source.
_WITHOUT_FAULT = {"DM_no_spare_worker"}
# What a merge has no series of that has no fault, no lock, no error, no certificate, and no limit of the binlog.
_EMPTY = (
    "dm_task_failures_total",
    "dm_task_joining_tables",
    "dm_ddl_lock_age_seconds",
    "dm_ddl_lock_conflict_oldest",
    "dm_source_binlog_retention_left_seconds",
    "dm_source_binlog_expires_in_seconds",
    "dm_source_binlog_retention_seconds",
    "dm_relay_disk_full_in_seconds",
    "dm_certificate_expiry_timestamp_seconds",
    "dm_worker_spark_executor_slots",
)


def _fire(prometheus: Prometheus, wanted: set[str], seconds: float = 90.0) -> None:
    until(
        lambda: wanted <= {alert.name for alert in prometheus.firing()},
        f"the alerts {sorted(wanted)} fire",
        seconds,
    )


def _only_fire(prometheus: Prometheus, allowed: set[str], seconds: float = 400.0) -> None:
    """Counters' alerts last for the length of their window."""
    until(
        lambda: {alert.name for alert in prometheus.firing()} <= allowed,
        f"no other alert than {sorted(allowed)} fires",
        seconds,
    )


def test_faults_make_the_alerts_fire(world: World, prometheus: Prometheus) -> None:
    family = world.family(_TASK)
    family.create(200)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating(_TASK)
    world.cluster.wait_caught_up(_TASK, dict(world.sources))
    world.cluster.compare(_TASK)
    until(lambda: prometheus.value("dm_compare_rows"), "the comparison is recorded", 20)
    _fire(prometheus, _WITHOUT_FAULT)
    assert {alert.name for alert in prometheus.firing()} == _WITHOUT_FAULT
    _dashboards(prometheus)

    source_id, source = world.sources[0]
    source.kill()
    _fire(prometheus, {"DM_source_disconnected", "DM_fail_to_read_binlog_from_master"})
    assert all(alert.labels["source_id"] == source_id for alert in prometheus.firing() if "source_id" in alert.labels)
    source.ensure_running()
    world.cluster.wait_caught_up(_TASK, dict(world.sources))

    worker = world.cluster.worker_of(source_id)
    worker.kill_all()
    _fire(prometheus, {"DM_worker_down", "DM_worker_offline", "DM_source_unbound"})
    worker.start()
    world.cluster.wait_caught_up(_TASK, dict(world.sources))

    world.target.execute(f"RENAME TABLE {_TASK}.orders TO {_TASK}.away")
    for _, server in world.sources:
        server.execute(f"UPDATE {_TASK}_01.order_01 SET amount = amount + 1")
    world.cluster.wait_paused(_TASK)
    _fire(prometheus, {"DM_paused_by_error", "DM_sync_process_exists_with_error"})
    named = {f"Task {_TASK} is paused at source {source_id}" for source_id, _ in world.sources}

    def descriptions() -> str:
        return " ".join(alert.description for alert in prometheus.firing() if alert.name == "DM_paused_by_error")

    until(lambda: all(text in descriptions() for text in named), f"alerts name {named}", 60)
    world.target.execute(f"RENAME TABLE {_TASK}.away TO {_TASK}.orders")
    world.cluster.dmctl("resume-task", _TASK)
    world.cluster.wait_caught_up(_TASK, dict(world.sources))
    assert family.verdict().differences == 0
    # Those of counters fire for as long as their window is.
    lasting = {"DM_sync_process_exists_with_error", "DM_fail_to_read_binlog_from_master"}
    _only_fire(prometheus, _WITHOUT_FAULT | lasting)
    world.cluster.dmctl("stop-task", _TASK)


def test_faults_of_a_ddl_and_of_the_relay_make_the_alerts_fire(
    tmp_path: Path, make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> None:
    """It has a worker of its own, whose relay log is on a small disk."""
    source, target = make_server("source"), make_server("target")
    with small_disk(tmp_path / "relay", 32) as disk:
        cluster = make_cluster(workers=1, worker_settings={"relay-dir": str(disk)})
        cluster.create_source("mysql-01", source)
        family = Family("faulty", (("mysql-01", source),), target)
        shards = family.create(100)
        cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
        cluster.wait_replicating("faulty")
        prometheus = Prometheus(tmp_path / "prometheus", cluster.masters, cluster.workers)
        try:
            prometheus.start()
            _a_full_disk(prometheus, shards, disk)
            cluster.wait_caught_up("faulty", {"mysql-01": source})
            assert family.verdict().differences == 0
            _a_parked_table(prometheus, source)
            cluster.wait_caught_up("faulty", {"mysql-01": source})
            _purged_binlogs(cluster, prometheus, source)
        finally:
            prometheus.stop()
            cluster.stop()


def _a_full_disk(prometheus: Prometheus, shards: Sequence[ShardTable], disk: Path) -> None:
    ballast = fill(disk, 64 << 10)
    with Writer(shards, seed=42) as writer:
        _fire(prometheus, {"DM_fail_to_write_relay_log", "DM_remain_storage_of_relay_log"})
        named = [each for each in prometheus.firing() if each.name.endswith("relay_log")]
        assert {each.labels["source_id"] for each in named} == {"mysql-01"}
        ballast.unlink()
        writer.go_on()
    _end(prometheus, {"DM_remain_storage_of_relay_log"})


def _a_parked_table(prometheus: Prometheus, source: MariaDB) -> None:
    source.execute("ALTER TABLE faulty_01.order_01 ADD COLUMN one INT")
    _fire(prometheus, {"DM_pending_DDL"})
    [alert] = [each for each in prometheus.firing() if each.name == "DM_pending_DDL"]
    assert alert.labels["task"] == "faulty"
    source.execute("ALTER TABLE faulty_01.order_02 ADD COLUMN one INT")
    _end(prometheus, {"DM_pending_DDL"})


def _purged_binlogs(cluster: Cluster, prometheus: Prometheus, source: MariaDB) -> None:
    cluster.dmctl("pause-relay", "-s", "mysql-01")
    source.execute("UPDATE faulty_01.order_01 SET amount = amount + 1")
    source.purge()
    # It reports the error if that comes in time.
    answer = cluster.dmctl("resume-relay", "-s", "mysql-01", check=False)
    assert answer.code == 0 or "source-binlog-unavailable" in answer.text
    _fire(prometheus, {"DM_relay_process_exits_with_error", "DM_source_disconnected"})


def _end(prometheus: Prometheus, ended: set[str], seconds: float = 60.0) -> None:
    until(
        lambda: not ended & {alert.name for alert in prometheus.firing()},
        f"the alerts {sorted(ended)} end",
        seconds,
    )


def _dashboards(prometheus: Prometheus) -> None:
    """Every expression of the dashboards has data."""
    for dashboard in DASHBOARDS:
        for row in dashboard.rows:
            for panel in row.panels:
                for query in panel.queries:
                    text = query.expression.replace("$__rate_interval", "1m")
                    for variable in ("task", "source_id"):
                        text = text.replace(f"${variable}", ".*")
                    if not any(name in text for name in _EMPTY):
                        assert prometheus.value(text), f"{dashboard.name}, {panel.title}: {text}"
