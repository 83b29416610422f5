"""Watermarks get the GTID sets that the relay log knows, and no others."""

from __future__ import annotations

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.model import Head
from shardmerge.worker.snapshot.chunk_records import ChunkResult, HighWatermark, StoredChunk
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.handover import build_handover
from shardmerge.worker.snapshot.watermark_gtids import missing_gtid_sets
from tests.unit.worker.snapshot.shards import PLAN

FIRST = 10
GONE = 70


class _Log:
    """Its group ends lie at every tenth byte, where the file has the same byte; it begins at FIRST."""

    def first(self) -> Head:
        return Head(RelayOffset(1, FIRST), self._place(FIRST), 0.0)

    def position_at(self, offset: RelayOffset) -> SourcePosition:
        if offset.byte == GONE:
            raise errors.relay.OFFSET_PURGED(source="s1", offset=offset, first=self.first().offset)
        return self._place(offset.byte)

    def locate(self, position: SourcePosition) -> RelayOffset:
        return RelayOffset(1, max(position.pos // 10 * 10, FIRST))

    def _place(self, byte: int) -> SourcePosition:
        return SourcePosition("f.1", byte, f"0-1-{byte}", "one")


def _learned(*marks: SourcePosition) -> list[tuple[int, str]]:
    """(chunk, GTID set) of what is recorded for chunks with these watermarks."""
    stored = [
        StoredChunk(
            0,
            Chunk(
                number, (b"%d" % number,) if number else (), (b"%d" % (number + 1),) if number + 1 < len(marks) else ()
            ),
            ChunkResult(1, 1, 0.1, HighWatermark(mark)),
        )
        for number, mark in enumerate(marks)
    ]
    log = _Log()
    handover = build_handover(stored, [PLAN], Endpoint("h", 1, "u"), "task", "s1", "log", log.locate)
    assert handover.shards == {PLAN.shard} and len(handover.tables[PLAN.shard].highs) == len(marks)
    found = list(missing_gtid_sets(stored, [PLAN], handover, log))
    assert all(item.place == marks[item.number] for item in found)
    return [(item.number, item.gtid_set) for item in found]


def _at(byte: int, gtid_set: str = "", server: str = "one") -> SourcePosition:
    return SourcePosition("f.1", byte, gtid_set, server)


def test_a_mark_takes_the_set_of_the_group_end_where_it_was_found() -> None:
    assert _learned(_at(40), _at(20), _at(43)) == [(0, "0-1-40"), (1, "0-1-20"), (2, "0-1-40")]


def test_a_mark_that_has_a_set_keeps_it() -> None:
    assert _learned(_at(40, "0-1-7"), _at(20)) == [(1, "0-1-20")]


def test_what_is_taken_for_the_beginning_of_the_log_is_not_known() -> None:
    assert _learned(_at(5), _at(FIRST), _at(12)) == [(1, "0-1-10"), (2, "0-1-10")]
    assert _learned(_at(FIRST, server="other")) == []


def test_a_place_that_the_log_no_longer_has_is_not_known() -> None:
    assert _learned(_at(GONE), _at(20)) == [(1, "0-1-20")]
