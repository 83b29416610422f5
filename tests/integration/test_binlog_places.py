"""Tests what `binlog skip -b` answers for each source: what is stored, and whether the source has the position."""

from __future__ import annotations

from typing import cast

import pytest

from tests.support.cluster import Json
from tests.support.world import World


@pytest.mark.turns
def test_a_position_that_a_source_does_not_have_is_stored_with_a_warning(world: World) -> None:
    family, cluster = world.family("places"), world.cluster
    family.create(10)
    cluster.start_task(family.task())
    cluster.wait_replicating("places")
    world.settle(["places"])
    file, pos = world.sources[1][1].binlog_end()
    while world.sources[0][1].binlog_end()[0] >= file:  # only the second source has the file
        world.sources[1][1].execute("FLUSH BINARY LOGS")
        file, pos = world.sources[1][1].binlog_end()
    world.sources[1][1].execute("DROP TABLE places_01.order_02")
    world.settle(["places"])

    def answers(*words: str) -> dict[str, str]:
        answer = cluster.dmctl("binlog", "skip", "places", *words).json
        sources = cast("list[Json]", answer["sources"])
        assert all(one["result"] for one in sources)
        if len(sources) > 1:
            assert "stored for 2 sources" in str(answer["msg"]) and "binlog revert places" in str(answer["msg"])
        return {str(one["source"]): str(one["msg"]) for one in sources}

    here = answers("-b", f"{file}:{pos}")
    assert "past the end" in here["mysql-01"]
    assert here["mysql-02"] == f"skip at {file}:{pos}"
    assert "past the end" in answers("-b", f"{file}:{pos + 100_000}", "-s", "mysql-02")["mysql-02"]
    assert "no such file" in answers("-b", "other.000001:4", "-s", "mysql-01")["mysql-01"]
    world.sources[0][1].execute("DELETE FROM places_01.order_01 WHERE id = 1")
    world.settle(["places"])
    cluster.dmctl("stop-task", "places")
