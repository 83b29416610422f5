"""Runs the case of every folder beside this file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.case import read_case
from tests.cases.runner import Runner
from tests.support.world import World

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("*/case.yaml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path, world: World) -> None:
    case = read_case(folder)
    runner = Runner(world, folder)
    try:
        runner.run(case)
    finally:
        runner.end()
