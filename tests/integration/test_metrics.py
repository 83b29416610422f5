"""Tests the metrics of real daemons against what independent sessions did at the servers."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from shardmerge.proto.metrics.catalogue import CATALOGUE
from tests.support.database import Database
from tests.support.metrics import Scrape, scrape
from tests.support.wait import until
from tests.support.world import Family, World

pytestmark = pytest.mark.spark

_INSERTS, _UPDATES, _DELETES = 30, 20, 10
_COLUMNS = "(id, customer, amount, state, token, created)"
_BACKLOG_SECONDS = 2.5


def _of_workers(world: World) -> Scrape:
    """Return the series of both workers together."""
    return Scrape(tuple(series for worker in world.cluster.workers for series in scrape(worker).series))


def _change_rows(family: Family) -> None:
    """Make a known number of changes in one shard table of each source."""
    for _, server in family.sources:
        table = f"{family.name}_01.order_01"
        rows = ", ".join(f"({9_000_000 + n}, 'one', 1, 'new', '', '2024-01-01')" for n in range(_INSERTS))
        server.execute(
            f"INSERT INTO {table} {_COLUMNS} VALUES {rows}",
            f"UPDATE {table} SET amount = amount + 1 WHERE id >= 9000000 ORDER BY id LIMIT {_UPDATES}",
            f"DELETE FROM {table} WHERE id >= 9000000 ORDER BY id LIMIT {_DELETES}",
        )


def _counted(found: Scrape, task: str) -> dict[str, float]:
    return {kind: found.sum("dm_lane_rows_total", task=task, kind=kind) for kind in ("insert", "update", "delete")}


def test_counters_lag_and_the_end_of_a_task(world: World) -> None:
    family = world.family("metrics")
    family.create(200)
    tables = len(family.shard_tables())
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating("metrics")
    world.cluster.wait_caught_up("metrics", dict(world.sources))
    _history(_of_workers(world), 200 * tables)

    _change_rows(family)
    world.cluster.wait_caught_up("metrics", dict(world.sources))
    sources = len(family.sources)
    wanted = {"insert": _INSERTS * sources, "update": _UPDATES * sources, "delete": _DELETES * sources}
    until(lambda: _counted(_of_workers(world), "metrics") == wanted, f"the lanes have reported {wanted}", 20)
    _changes(_of_workers(world), wanted)
    until(
        lambda: (
            [each.labels["basis"] for each in _of_workers(world).of("dm_task_lag_seconds", task="metrics")]
            == ["idle"] * sources
        ),
        "everything is applied",
        20,
    )
    _masters(world)

    _backlog(world, family)

    assert family.verdict().differences == 0
    world.cluster.dmctl("stop-task", "metrics")
    for daemon in world.cluster.daemons:
        until(
            lambda daemon=daemon: not any(each.labels.get("task") == "metrics" for each in scrape(daemon).series),
            f"{daemon.name} exports nothing of the stopped task",
            20,
        )


def _history(found: Scrape, rows: int) -> None:
    """The history's figures remain once it is copied."""
    assert found.sum("dm_snapshot_rows_done", task="metrics") == rows
    assert found.sum("dumpling_dump_finished_rows", task="metrics") == rows
    assert found.sum("dm_snapshot_chunks_done", task="metrics") == found.sum("lightning_chunks", state="estimated")
    assert found.sum("lightning_tables", task="metrics", state="pending") == 0
    assert found.sum("dm_snapshot_eta_seconds", task="metrics") == 0
    for cause in ("read", "write"):
        assert found.sum("dm_snapshot_reader_seconds_total", task="metrics", cause=cause) > 0
    assert found.sum("dm_snapshot_reader_seconds_total", task="metrics", cause="throttle") == 0


def _changes(found: Scrape, wanted: Mapping[str, float]) -> None:
    total = sum(wanted.values())
    for kind, count in wanted.items():
        of = {"task": "metrics", "type": kind, "target_schema": "metrics", "target_table": "orders"}
        assert found.sum("dm_syncer_finished_jobs_total", **of) == count
        assert found.sum("dm_syncer_added_jobs_total", **of) == count
    assert found.sum("dm_syncer_replication_transaction_batch_sum", task="metrics", type="rows") == total
    commits = found.sum("dm_syncer_finished_transaction_total", task="metrics")
    assert found.sum("dm_syncer_txn_duration_time_count", task="metrics") == commits >= 2
    assert 0 < found.sum("dm_lane_written_rows_total", task="metrics") <= total
    assert found.sum("dm_lane_statements_total", task="metrics") > 0
    assert found.sum("dm_lane_seconds_total", task="metrics", cause="target") > 0
    assert found.sum("dm_lane_seconds_total", task="metrics", cause="idle") > 0
    # Counters of failures exist before the first failure, under both of their names.
    for name in ("dm_syncer_exit_with_error_count", "dm_loader_exit_with_error_count"):
        for resumable in ("true", "false"):
            of = {"task": "metrics", "resumable_err": resumable}
            assert [each.value for each in found.of(name, **of)] == [0, 0]
            assert [each.value for each in found.of(f"{name}_total", **of)] == [0, 0]
    assert {each.value for each in found.of("dm_worker_task_state", task="metrics")} == {2}
    assert {each.value for each in found.of("dm_source_connected")} == {1}
    assert all(each.value > 0 for each in found.of("dm_relay_written_bytes_total"))
    assert all(each.value > 1e7 for each in found.of("dm_worker_jvm_resident_memory_bytes"))
    _only_known(found)


def _only_known(found: Scrape) -> None:
    """Every exported name is in the catalogue, with exactly the labels that are declared there."""
    for series in found.series:
        name = series.name
        family = CATALOGUE.get(name) or CATALOGUE.get(name.removesuffix("_total"))
        for suffix in ("_bucket", "_count", "_sum"):
            family = family or CATALOGUE.get(name.removesuffix(suffix))
        assert family is not None, name
        assert set(series.labels) - {"le"} == set(family.labels), series


def _masters(world: World) -> None:
    found = scrape(world.cluster.masters[0])
    _only_known(found)
    assert found.one("dm_leader") == 1
    assert found.one("dm_workers", state="bound") == len(world.sources)
    assert {each.value for each in found.of("dm_master_worker_state")} == {2}
    assert found.one("dm_subtasks", task="metrics", expected="running") == len(world.sources)
    assert found.one("dm_master_ddl_state_number", task="metrics", type="Un-synced") == 0
    assert found.one("dm_master_start_leader_counter") == found.one("dm_master_start_leader_counter_total") >= 1


def _backlog(world: World, family: Family) -> None:
    """While the target does not accept a row, the lag grows from scrape to scrape and is never 0."""
    source_id, server = world.sources[0]
    worker = world.cluster.worker_of(source_id)
    of = {"task": "metrics", "source_id": source_id}
    connection = world.target.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLES metrics.orders READ")
        began = time.monotonic()
        _insert_one(server, family)
        written = time.monotonic()
        # Before the relay has the event, only the time since the worker saw a longer binlog is known.
        until(lambda: scrape(worker).sum("dm_lane_lag_seconds", **of) > 0, "a lane has the backlog", 20, every=0.05)
        while time.monotonic() - written < _BACKLOG_SECONDS:
            least = time.monotonic() - written
            found = scrape(worker)
            # The source records whole seconds, rounded down.
            most = time.monotonic() - began + 1.1
            assert least - 0.1 <= found.one("dm_task_lag_seconds", **of, basis="event") <= most
            assert found.one("dm_syncer_replication_lag_gauge", **of) > 0
            assert not found.of("dm_task_lag_seconds", **of, basis="idle")
            assert found.one("dm_task_bytes_behind", **of) > 0
            assert found.one("dm_task_synced", **of) == 0
            time.sleep(0.1)
    finally:
        connection.close()
    world.cluster.wait_caught_up("metrics", dict(world.sources))
    until(lambda: scrape(worker).of("dm_task_lag_seconds", **of, basis="idle"), "the backlog is applied", 20)


def _insert_one(server: Database, family: Family) -> None:
    server.execute(
        f"INSERT INTO {family.name}_01.order_01 {_COLUMNS} VALUES (9500000, 'one', 1, 'new', '', '2024-01-01')"
    )
