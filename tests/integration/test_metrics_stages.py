"""Tests the metrics of a task while it is paused, resumed, and without etcd: no counter falls, no stage is made up."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tests.support.metrics import Scrape, scrape
from tests.support.wait import until
from tests.support.world import Family, World

_TASK = "stages"
_PRESENT = ("dm_worker_task_state", "dm_task_seconds_since_progress", "dm_task_synced", "dm_task_lag_seconds")
Counters = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def _of_workers(world: World) -> Scrape:
    """Return the series of both workers together."""
    return Scrape(tuple(series for worker in world.cluster.workers for series in scrape(worker).series))


def _counters(world: World) -> Counters:
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for each in _of_workers(world).series
        if each.labels.get("task") == _TASK and each.name.endswith(("_total", "_count", "_bucket"))
    }


def _not_fallen(world: World, before: Counters) -> Counters:
    now = _counters(world)
    assert before, "there are counters"
    assert {key: (value, now.get(key)) for key, value in before.items() if now.get(key, -1.0) < value} == {}
    return now


def _insert(family: Family, first: int) -> None:
    for _, server in family.sources:
        rows = ", ".join(f"({first + n}, 'one', 1, 'new', '', '2024-01-01')" for n in range(20))
        server.execute(
            f"INSERT INTO {family.name}_01.order_01 (id, customer, amount, state, token, created) VALUES {rows}"
        )


def _states(world: World) -> list[float]:
    return [each.value for each in _of_workers(world).of("dm_worker_task_state", task=_TASK)]


def test_stages(world: World) -> None:
    family = world.family(_TASK)
    family.create(50)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating(_TASK)
    _insert(family, 9_000_000)
    world.cluster.wait_caught_up(_TASK, dict(world.sources))
    sources = len(family.sources)
    until(
        lambda: _of_workers(world).sum("dm_lane_rows_total", task=_TASK, kind="insert") == 20 * sources,
        "the lanes have reported",
        20,
    )
    counters = _counters(world)

    world.cluster.dmctl("pause-task", _TASK)
    until(lambda: _states(world) == [3.0] * sources, "it is paused", 30)
    found = _of_workers(world)
    assert found.sum("dm_task_paused", task=_TASK, by="operator") == sources
    assert found.sum("dm_task_paused", task=_TASK, by="error") == 0
    assert not found.of("dm_task_lag_seconds", task=_TASK), "nobody applies: the lag is not known"
    assert not found.of("dm_task_bytes_behind", task=_TASK)
    assert found.sum("dm_task_synced", task=_TASK) == 0
    counters = _not_fallen(world, counters)

    world.cluster.dmctl("resume-task", _TASK)
    _insert(family, 9_100_000)
    world.cluster.wait_caught_up(_TASK, dict(world.sources))
    assert _states(world) == [2.0] * sources
    counters = _not_fallen(world, counters)

    world.cluster.etcd.stop()
    try:
        until(lambda: _of_workers(world).sum("dm_worker_registered") == 0, "the leases are lost", 60)
        found = _of_workers(world)
        assert [name for name in _PRESENT if found.of(name, task=_TASK)] == []
        counters = _not_fallen(world, counters)
    finally:
        world.cluster.etcd.start()
    until(lambda: _states(world) == [2.0] * sources, "it runs again", 60)
    _insert(family, 9_200_000)
    world.cluster.wait_caught_up(_TASK, dict(world.sources))
    _not_fallen(world, counters)
    assert family.verdict().differences == 0

    world.cluster.dmctl("stop-task", _TASK)
    until(
        lambda: not [each for each in _of_workers(world).series if each.labels.get("task") == _TASK],
        "a stopped task has no series",
        20,
    )


def test_the_lag_grows_while_a_run_is_tried_again(world: World) -> None:
    name = "retried"
    family = world.family(name)
    family.create(50)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating(name)
    _insert(family, 9_200_000)
    world.cluster.wait_caught_up(name, dict(world.sources))

    def lags() -> list[float]:
        return [each.value for each in _of_workers(world).of("dm_task_lag_seconds", task=name)]

    time.sleep(2.5)  # that everything is applied is looked at every second
    applied = time.monotonic()
    world.target.kill()
    _insert(family, 9_300_000)
    until(
        lambda: all(sub.stage == "Paused" for sub in world.cluster.subtasks(name).values()), "the runs have failed", 120
    )
    before: list[float] = []
    for _ in range(8):
        found = lags()
        assert len(found) == len(family.sources), "the lag is known while the runs are tried again"
        assert all(0 < lag <= time.monotonic() - applied + 3 for lag in found)
        assert not before or min(found) > min(before)
        before = found
        time.sleep(1)
    assert min(before) > 7
    world.target.start()
    world.cluster.wait_caught_up(name, dict(world.sources))
    until(lambda: max(lags()) == 0, "everything is applied", 30)
    world.cluster.dmctl("stop-task", name)
