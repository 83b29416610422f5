"""The one world of all cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.world import World


@pytest.fixture(scope="session")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Servers and cluster, started once."""
    made = World(tmp_path_factory.mktemp("cases"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def world(shared_world: World, watch_logs: Callable[[Path], None]) -> World:
    watch_logs(shared_world.directory)
    return shared_world
