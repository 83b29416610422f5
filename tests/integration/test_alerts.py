"""Tests that faults of real daemons make alerts fire in a real Prometheus, and that none fires without a fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.grafana.dashboards import DASHBOARDS
from tests.support.prometheus import Prometheus
from tests.support.wait import until
from tests.support.world import World

pytestmark = pytest.mark.grid
_TASK = "alerted"
# Each worker has a source.
_WITHOUT_FAULT = {"DM_no_spare_worker"}
# What a merge without a fault, and without a lock or an error, has no series of.
_EMPTY = (
    "dm_task_failures_total",
    "dm_task_joining_tables",
    "dm_ddl_lock_age_seconds",
    "dm_source_binlog_retention_left_seconds",
    "dm_worker_spark_executor_slots",
    "dm_syncer_remaining_time",
)


@pytest.fixture
def prometheus(world: World, tmp_path: Path) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path / "prometheus", world.cluster.masters, world.cluster.workers)
    try:
        yield made.start()
    finally:
        made.stop()


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
    [*errors] = [alert for alert in prometheus.firing() if alert.name == "DM_paused_by_error"]
    assert {alert.labels["source_id"] for alert in errors} == {name for name, _ in world.sources}
    assert all(f"Task {_TASK} is paused at source {alert.labels['source_id']}" in alert.description for alert in errors)
    world.target.execute(f"RENAME TABLE {_TASK}.away TO {_TASK}.orders")
    world.cluster.dmctl("resume-task", _TASK)
    world.cluster.wait_caught_up(_TASK, dict(world.sources))
    assert family.verdict().differences == 0
    # Those of counters fire for as long as their window is.
    lasting = {"DM_sync_process_exists_with_error", "DM_fail_to_read_binlog_from_master"}
    _only_fire(prometheus, _WITHOUT_FAULT | lasting)
    world.cluster.dmctl("stop-task", _TASK)


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
