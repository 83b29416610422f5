"""Provides worlds for end-to-end tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.mariadb import MariaDB
from tests.support.other_machine import OtherMachine, another_machine
from tests.support.prometheus import Prometheus
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_merge import SparkMerge
from tests.support.world import Family, World

_LONGEST = (
    "test_whole_system.py",
    "test_pages_of_operation.py",
    "test_tls_processes.py",
    "test_worker_process.py",
    "test_worker_start.py",
    "test_pairs.py",
    "test_spark_cases.py",
    "test_faults.py",
    "test_merge.py",
    "test_open_addresses.py",
    "test_evaluate.py",
)

_OF_GRID = frozenset(
    {
        "test_alerts.py",
        "test_binlog_schema.py",
        "test_changed_key_way_out.py",
        "test_check_task.py",
        "test_compare.py",
        "test_compare_unkeyed.py",
        "test_copy_ddl_kill.py",
        "test_copy_statements.py",
        "test_cut_over.py",
        "test_ddl.py",
        "test_ddl_kill.py",
        "test_deferred_indexes_of_joins.py",
        "test_event_filters.py",
        "test_extract.py",
        "test_filtered_ddl_kill.py",
        "test_forecasts.py",
        "test_internal_error.py",
        "test_kill.py",
        "test_kubernetes_executor.py",
        "test_lane_count.py",
        "test_memory.py",
        "test_metrics.py",
        "test_metrics_stages.py",
        "test_metrics_truth.py",
        "test_online_ddl.py",
        "test_operator_statements.py",
        "test_optimistic_kill.py",
        "test_pack.py",
        "test_pages_of_recovery.py",
        "test_proxy.py",
        "test_purge_relay.py",
        "test_python_transforms.py",
        "test_random_merges.py",
        "test_rule_updates.py",
        "test_rules_command.py",
        "test_secrets_at_rest.py",
        "test_server_id.py",
        "test_shard_ddl_kill.py",
        "test_shard_lock_operator.py",
        "test_shop.py",
        "test_source_moves.py",
        "test_source_update.py",
        "test_source_without_worker.py",
        "test_spark_losses.py",
        "test_spark_yarn.py",
        "test_stop_at.py",
        "test_support_bundle.py",
        "test_task_history.py",
        "test_traces.py",
        "test_transform_kills.py",
        "test_transform_updates.py",
        "test_truthful_status.py",
        "test_update_task.py",
        "test_why.py",
    }
)
"""These files test whole clusters, and take half an hour together. The default run has other files of this kind:
test_whole_system.py, attacks, pages, faults, pairs of servers, TLS and Spark itself. The cases test every behaviour."""

_CLUSTERS = frozenset({"module_world", "module_replicated", "make_cluster", "linked_world"})
"""Fixtures that start a cluster with the default options."""


def _mark_files(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if item.path.name in _OF_GRID:
            item.add_marker("grid")
        elif item.path.parent.name == "ways_out" and item.get_closest_marker("turns") is None:
            module = item.getparent(pytest.Module)
            assert module is not None
            module.add_marker("turns")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave some files to the grid, before pytest deselects it. Run the longest files first: a long file at the
    end would run alone while other processes wait. Then run those with a cluster: each leaves its cluster to the next
    one (tests/support/kept_world.py)."""
    _mark_files(items)
    places = {name: place for place, name in enumerate(_LONGEST)}
    with_cluster = {item.path for item in items if not _CLUSTERS.isdisjoint(getattr(item, "fixturenames", ()))}

    def rank(path: Path) -> int:
        return 0 if path in with_cluster else 1

    items.sort(key=lambda item: (places.get(item.path.name, len(places)), rank(item.path)))


@pytest.fixture(scope="module", autouse=True)
def files_of_module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove the files of a module's servers after its last test, unless a test of it failed.

    pytest keeps the folders of module fixtures until the session ends. 200 modules fill a disk: together their servers
    have 50 GB of data.
    """
    base = tmp_path_factory.getbasetemp()
    before = set(base.iterdir())
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed == failed:
        for folder in set(base.iterdir()) - before:
            if folder.is_symlink():
                folder.unlink()
            else:
                shutil.rmtree(folder)


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Provide one world for the tests of a module: starting Spark twice takes longer than most tests."""
    made = World(tmp_path_factory.mktemp("world"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def world(module_world: World, watch_logs: Callable[[Path], None]) -> World:
    watch_logs(module_world.directory)
    module_world.heal()
    return module_world


@pytest.fixture
def prometheus(world: World, tmp_path: Path) -> Iterator[Prometheus]:
    """Provide a Prometheus that scrapes the world's daemons."""
    made = Prometheus(tmp_path / "prometheus", world.cluster.masters, world.cluster.workers)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def make_spark(tmp_path: Path, watch_logs: Callable[[Path], None]) -> Iterator[Callable[..., SparkCluster]]:
    """``make_spark(**arguments of SparkCluster)``: a started cluster, ended after the test."""
    made: list[SparkCluster] = []

    def make(**arguments: object) -> SparkCluster:
        folder = tmp_path / f"spark-{len(made) + 1}"
        cluster = SparkCluster(folder, **arguments)  # pyright: ignore[reportArgumentType]
        watch_logs(folder)
        made.append(cluster)
        return cluster.start()

    yield make
    for cluster in made:
        cluster.stop()


@pytest.fixture
def other_machine() -> Iterator[OtherMachine]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and the command ip")
    with another_machine() as made:
        yield made


@pytest.fixture
def make_merge(make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]) -> Callable[..., SparkMerge]:
    """``make_merge(spark, **settings of Spark)``: servers and a cluster whose worker runs its lanes on ``spark``."""

    def make(spark: SparkCluster, settings: Mapping[str, str] = {}) -> SparkMerge:
        source, target = make_server("source"), make_server("target")
        cluster = make_cluster(workers=1, worker_settings={"spark": {**spark.settings, **settings}})
        cluster.create_source("mysql-01", source)
        return SparkMerge(spark, cluster, Family("spread", (("mysql-01", source),), target), source)

    return make
