"""Runs the case of every folder beside this file."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.cases.case import read_case
from tests.cases.conftest import TARGET
from tests.cases.runner import Runner
from tests.support.tidb import TiDB
from tests.support.world import World

FOLDERS = [
    path.parent
    for path in sorted(Path(__file__).parent.glob("*/case.yaml"))
    if TARGET is not TiDB or read_case(path.parent).not_on_tidb is None
]
_META = "dm_meta"


def _case(folder: Path) -> ParameterSet:
    """The cases that concern Spark run in one process, which starts Spark once."""
    has_spark = "transforms:" in (folder / "case.yaml").read_text(encoding="utf-8")
    marks = (pytest.mark.spark, pytest.mark.xdist_group("spark")) if has_spark else ()
    return pytest.param(folder, id=folder.name, marks=marks)


@pytest.mark.parametrize("folder", map(_case, FOLDERS))
def test_case(folder: Path, world: World) -> None:
    case = read_case(folder)
    before = _schemas(world)
    runner = Runner(world, folder)
    try:
        runner.run(case)
    finally:
        runner.end()
    strangers = [name for name in _schemas(world) - before if not name.startswith(runner.schema) and name != _META]
    assert not strangers, f"schemas that another case could meet: {strangers}"


def _schemas(world: World) -> set[str]:
    return {str(name) for server in world.servers for (name,) in server.query("SHOW DATABASES")}
