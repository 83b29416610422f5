"""Tables that begin to join just while somebody asks: they are seen where they wait or where they join."""

from __future__ import annotations

from typing import Any, cast

import pytest

from proto import worker_pb2
from worker.join.unit import JoiningUnit
from worker.position import RelayOffset


class Lanes:
    """A subtask's own, all of them at their source's end; and what tells of itself as they do."""

    def __init__(self, lowest: RelayOffset) -> None:
        self._lowest = lowest
        self.replays = True

    def status(self) -> worker_pb2.SyncStatus:
        return worker_pb2.SyncStatus(synced=True)

    def lowest(self) -> RelayOffset:
        return self._lowest


class Coming:
    """Tables that are taken in the moment in which somebody asks for them."""

    def __init__(self, taken: Lanes) -> None:
        self._taken = taken
        self.unit: JoiningUnit | None = None

    def waits(self) -> bool:
        vars(self.unit)["_join"] = self._taken
        return False

    def lowest(self) -> RelayOffset | None:
        self.waits()
        return None


@pytest.fixture
def unit() -> JoiningUnit:
    coming = Coming(Lanes(RelayOffset(2, 0)))
    nobody = cast("Any", None)
    main = cast("Any", Lanes(RelayOffset(5, 0)))
    coming.unit = JoiningUnit(nobody, main, nobody, nobody, None, cast("Any", coming))
    return coming.unit


def test_nothing_is_synced(unit: JoiningUnit) -> None:
    assert not unit.status().synced


def test_the_relay_log_is_needed_from_where_they_stand(unit: JoiningUnit) -> None:
    assert unit.lowest() == RelayOffset(2, 0)


def test_the_lanes_do_not_have_all_tables(unit: JoiningUnit) -> None:
    assert unit.whole is None
