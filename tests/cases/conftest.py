"""The one world of all cases."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.mariadb import MariaDB
from tests.support.tidb import TiDB
from tests.support.world import World

TARGET = TiDB if os.environ.get("SHARDMERGE_CASES_TARGET") == "tidb" else MariaDB
"""The kind of the target of all cases."""


@pytest.fixture(scope="session")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Servers and cluster, started once."""
    made = World(tmp_path_factory.mktemp("cases"), targets=(TARGET,))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def world(shared_world: World, watch_logs: Callable[[Path], None]) -> World:
    watch_logs(shared_world.directory)
    return shared_world
