"""Runs the case of every folder, in a world without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.runner import run_case
from tests.cases.selection import FOLDERS, OF_SPARK
from tests.support.world import World


@pytest.mark.parametrize("folder", sorted(FOLDERS - OF_SPARK), ids=lambda folder: folder.name)
def test_case(folder: Path, world: World) -> None:
    run_case(folder, world)
