"""The worlds of all cases: one without a JVM, and one with Spark for the cases that concern Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cases.selection import TARGET
from tests.support.world import World


def _started(folder: Path) -> Iterator[World]:
    """Servers and cluster, started once."""
    made = World(folder, targets=(TARGET,))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="module")
def world_without_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from _started(tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="module")
def world_with_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from _started(tmp_path_factory.mktemp("spark-cases"))


@pytest.fixture
def world(request: pytest.FixtureRequest, watch_logs: Callable[[Path], None]) -> World:
    has_spark = request.node.get_closest_marker("spark") is not None
    made: World = request.getfixturevalue("world_with_spark" if has_spark else "world_without_jvm")
    watch_logs(made.directory)
    return made
