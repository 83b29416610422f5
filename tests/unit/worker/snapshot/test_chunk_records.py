"""Tests that planned chunks are cut, and loaded ones keep their range and result."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.snapshot.chunk_records import (
    ChunkResult,
    HighWatermark,
    StoredChunk,
    divided_chunks,
    missing_chunk,
)
from shardmerge.worker.snapshot.chunks import Bound, cut


def _bound(key: int) -> Bound:
    return (b"%d" % key,)


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=6),
    st.sets(st.integers(0, 5)),
    st.booleans(),
)
def test_the_chunks_cover_the_same_keys_in_their_order(widths: list[int], loaded: set[int], complete: bool) -> None:
    ends = [sum(widths[: at + 1]) * 10 for at in range(len(widths))]
    chunks = list(cut(map(_bound, ends)))[: None if complete else -1]
    stored = [
        StoredChunk(3, chunk, ChunkResult(chunk.number, 1, 0.5, HighWatermark(SourcePosition("f", chunk.number))))
        if chunk.number in loaded
        else StoredChunk(3, chunk, None)
        for chunk in chunks
    ]
    bounds = {
        item.chunk.number: [_bound(key) for key in range(int(item.chunk.lower[0]) + 10, int(item.chunk.upper[0]), 10)]
        for item in stored
        if item.chunk.lower and item.chunk.upper
    }
    found = divided_chunks(stored, bounds)
    assert [item.chunk.number for item in found] == list(range(len(found)))
    assert (found[0].chunk.lower, found[-1].chunk.upper) == (stored[0].chunk.lower, stored[-1].chunk.upper)
    assert all(one.chunk.upper == other.chunk.lower for one, other in pairwise(found))
    kept = [(item.chunk.lower, item.chunk.upper, item.loaded) for item in found if item.loaded is not None]
    assert kept == [(item.chunk.lower, item.chunk.upper, item.loaded) for item in stored if item.loaded is not None]
    planned = {item.chunk.upper for item in found if item.loaded is None}
    wanted = {bound for item in stored if item.loaded is None for bound in bounds.get(item.chunk.number, ())}
    assert planned == wanted | {item.chunk.upper for item in stored if item.loaded is None}
    assert {item.shard for item in found} == {3}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_a_chunk_without_a_record_before_one_with_is_missing(sizes: list[int], data: st.DataObject) -> None:
    stored = [
        StoredChunk(shard, chunk, None)
        for shard, size in enumerate(sizes)
        for chunk in list(cut([_bound(key) for key in range(size)]))[:size]
    ]
    assert missing_chunk(stored) is None
    lost = data.draw(st.sampled_from(stored))
    kept = [item for item in stored if item is not lost]
    later = [item for item in kept if item.shard == lost.shard and item.chunk.number > lost.chunk.number]
    assert missing_chunk(kept) == ((lost.shard, lost.chunk.number) if later else None)
