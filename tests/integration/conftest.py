"""Worlds for end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.world import World


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
