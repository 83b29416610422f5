"""Which changes of a block the snapshot does not hold: decided by the relay offset of each change's event."""

from __future__ import annotations

from collections.abc import Callable

from shardmerge.proto import relay_pb2
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.replicate.lane.watermark_filter import WatermarkFilter
from shardmerge.worker.snapshot.handover import Handover, TableWatermarks
from shardmerge.worker.snapshot.key_order import numeric_places
from tests.unit.worker.snapshot.shards import ID, Step, change_of

HIGH = RelayOffset(1, 1050)


class _Numeric(Handover):
    """Compares keys here: there is no source."""

    def apply(self, changes: list[RowChange], offset_of: Callable[[RowChange], RelayOffset]) -> list[RowChange]:
        return self.apply_with(changes, offset_of, lambda _, bounds, keys: numeric_places(bounds, keys))


def _filter() -> WatermarkFilter:
    marks = TableWatermarks((ID,), (), (HIGH,), RelayOffset(1, 0), HIGH)
    lowest = (SourcePosition("f.1", 0), RelayOffset(1, 0))
    return WatermarkFilter(_Numeric(Endpoint("h", 1, "u"), "s1", {0: marks}, lowest, HIGH))


def _insert(at: int) -> RowChange:
    return change_of(Step(None, (at, 0)), at)


def _block(start: int, place_at: list[int], place_byte: list[int]) -> relay_pb2.Block:
    return relay_pb2.Block(start=RelayOffset(1, start).to_proto(), place_at=place_at, place_byte=place_byte)


def test_changes_from_the_high_watermark_on_count() -> None:
    block = _block(1000, [], [])
    made = _filter()
    assert made.concerns(block)
    held, counted = _insert(49), _insert(50)
    assert made.counted([held, counted], block) == [counted]


def test_in_unpacked_events_the_place_of_their_group_counts() -> None:
    """A change's byte is then not one of the relay log."""
    block = _block(1000, [0, 300], [1049, 1050])
    held, counted = _insert(299), _insert(300)
    assert _filter().counted([held, counted], block) == [counted]


def test_from_the_highest_watermark_on_no_block_is_concerned() -> None:
    made = _filter()
    assert made.concerns(_block(1049, [], []))
    assert not made.concerns(_block(1050, [], []))
    changes = [_insert(1)]
    assert made.counted(changes, _block(1050, [], [])) == changes


def test_without_a_snapshot_no_block_is_concerned() -> None:
    assert not WatermarkFilter(None).concerns(_block(0, [], []))
