"""Follows docs/tutorial/cities.md: schemas that are named by words are merged with the name in the key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import pytest

from tests.support.page import DOCS, Reader, Schema, blocks
from tests.support.pair import KINDS
from tests.support.wait import until
from tests.support.world import World

PAGE = DOCS / "tutorial" / "cities.md"


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.grid)])
def world(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[World]:
    kind = KINDS[request.param]
    made = World(tmp_path_factory.mktemp("cities"), (kind, kind), (kind,))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.mark.turns
def test_the_page(world: World) -> None:
    places = {f"at the source {name}": [Schema(server)] for name, server in world.sources}
    reader = Reader(world.cluster, {**places, "at the target": [Schema(world.target)]})
    [task] = [block.text for block in blocks(PAGE, "2.") if block.language == "yaml"]
    text = re.sub("^target-database: .*$", f"target-database: {world.target.login}", task, flags=re.MULTILINE)
    world.cluster.write("rides.yaml", text)
    reader.follow(PAGE, "1.")
    *commands, shown = blocks(PAGE, "3.")
    for block in commands:
        reader.run(block)
    [[cities, first]] = reader.run(shown)
    assert cities == [("berlin", 2, Decimal("19.70")), ("hamburg", 1, Decimal("9.90")), ("wien", 2, Decimal("20.10"))]
    assert first == [("berlin", Decimal("12.50")), ("hamburg", Decimal("9.90")), ("wien", Decimal("14.00"))]
    keys = world.target.query(
        "SELECT INDEX_NAME, GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) FROM information_schema.STATISTICS"
        " WHERE TABLE_SCHEMA = 'company' GROUP BY INDEX_NAME ORDER BY INDEX_NAME"
    )
    assert keys == [("code", "code,city"), ("PRIMARY", "id,city")]
    reader.follow(PAGE, "4.", "5.")
    until(lambda: _cities(world) == [("berlin", 2), ("graz", 1), ("wien", 2)], "one city opens, one closes", 60)
    world.target.execute("DELETE FROM company.rides WHERE city = 'wien' AND id = 2")
    reader.follow(PAGE, "6.")
    assert _cities(world) == [("berlin", 2), ("graz", 1), ("wien", 2)]


def _cities(world: World) -> list[tuple[object, ...]]:
    return world.target.query("SELECT city, COUNT(*) FROM company.rides GROUP BY city ORDER BY city")
