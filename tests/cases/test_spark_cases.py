"""Runs the cases that only Spark can run. A file of its own: it starts Spark once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.runner import run_case
from tests.cases.selection import OF_SPARK
from tests.support.world import World

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("folder", sorted(OF_SPARK), ids=lambda folder: folder.name)
def test_case(folder: Path, world: World) -> None:
    run_case(folder, world)
