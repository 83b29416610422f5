"""Tables that begin to join during a query of the unit: the query sees them either as waiting or as joining."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shardmerge.proto import worker_pb2
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.replicate.join.unit import JoiningUnit


class Lanes:
    """A subtask's own lanes, all at their source's end; and a fake that reports the same."""

    def __init__(self, lowest: RelayOffset) -> None:
        self._lowest = lowest
        self.replays = True

    def status(self) -> worker_pb2.SyncStatus:
        return worker_pb2.SyncStatus(synced=True)

    def lowest(self) -> RelayOffset:
        return self._lowest


class TableSource:
    """Tables that are taken at the moment when the unit asks for them."""

    def __init__(self, taken: Lanes) -> None:
        self._taken = taken
        self.unit: JoiningUnit | None = None

    def has_more(self) -> bool:
        vars(self.unit)["_join"] = self._taken
        return False

    def lowest(self) -> RelayOffset | None:
        self.has_more()
        return None


@pytest.fixture
def unit() -> JoiningUnit:
    source = TableSource(Lanes(RelayOffset(2, 0)))
    unused = cast("Any", None)
    main = cast("Any", Lanes(RelayOffset(5, 0)))
    source.unit = JoiningUnit(unused, main, unused, unused, None, cast("Any", source))
    return source.unit


def test_nothing_is_synced(unit: JoiningUnit) -> None:
    assert not unit.status().synced


def test_the_relay_log_is_needed_from_their_position(unit: JoiningUnit) -> None:
    assert unit.lowest() == RelayOffset(2, 0)
