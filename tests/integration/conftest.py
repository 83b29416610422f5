"""Worlds for end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.world import World

_LONGEST = (
    "test_kill.py",
    "test_update_task.py",
    "test_shard_ddl_kill.py",
    "test_pairs.py",
    "test_ddl_kill.py",
    "test_lane_count.py",
    "test_compare.py",
    "test_faults.py",
    "test_merge.py",
    "test_optimistic_kill.py",
    "test_stop_at.py",
    "test_worker_process.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first: one that came last would run alone while other processes wait."""
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world for the tests of a module: starting Spark twice takes longer than most tests."""
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
