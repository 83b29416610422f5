"""I5: every change is in exactly one of chunk and stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.snapshot import handover as handover_module
from shardmerge.worker.snapshot.chunk_records import ChunkResult, HighWatermark, StoredChunk
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.handover import NEVER, Handover, TableWatermarks, build_handover
from shardmerge.worker.snapshot.key_order import numbers, numeric_places
from tests.unit.worker.snapshot.shards import ID, PLAN, State, change_of, history, row_of, rows_of

_ENDPOINT = Endpoint("127.0.0.1", 1, "nobody")
_CHOICES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11), st.integers(0, 11)), max_size=60)


_NEVER = NEVER.segment


def _handover(bounds: list[int], highs: list[int]) -> Handover:
    """``highs``: per chunk, how many steps of the history it holds; _NEVER: it is not copied."""
    offsets = tuple(NEVER if high == _NEVER else RelayOffset(1, high) for high in highs)
    marks = TableWatermarks((ID,), tuple((b"%d" % bound,) for bound in bounds), offsets, min(offsets), max(offsets))
    return Handover(
        _ENDPOINT, "s1", {PLAN.shard: marks}, (SourcePosition("f.1", min(highs)), min(offsets)), max(offsets)
    )


def _offset(change: RowChange) -> RelayOffset:
    return RelayOffset(1, change.byte)


def _apply(target: dict[Literals, Literals], change: RowChange) -> None:
    """Apply changes like the target: the old row of a change must exist as it was, the new row must not exist yet."""
    if change.kind is ChangeKind.INSERT:
        assert not change.before
    if change.kind is ChangeKind.DELETE:
        assert not change.after
    if change.before:
        assert target.pop(change.before[:1]) == change.before
    if change.after:
        assert change.after[:1] not in target
        target[change.after[:1]] = change.after


@given(_CHOICES, st.lists(st.integers(0, 12), max_size=4, unique=True).map(sorted), st.data())
def test_chunks_and_the_changes_kept_give_the_source(
    choices: list[tuple[int, int, int]], bounds: list[int], data: st.DataObject
) -> None:
    steps, states = history(choices)
    highs = [data.draw(st.integers(0, len(steps))) for _ in range(len(bounds) + 1)]
    handover = _handover(bounds, highs)

    target: dict[Literals, Literals] = {}
    for number in range(len(highs)):
        target.update(rows_of(_chunk_of(states[highs[number]], bounds, number)))
    # Step n lies at offset n: a chunk with high watermark h holds steps 0 … h - 1.
    changes = [change_of(step, at) for at, step in enumerate(steps)][min(highs) :]
    for change in handover.apply(changes, _offset):
        _apply(target, change)
    assert target == rows_of(states[-1])


@given(_CHOICES, st.lists(st.integers(0, 12), max_size=4, unique=True).map(sorted), st.data())
def test_a_copy_that_is_interrupted_twice_gives_the_source(
    choices: list[tuple[int, int, int]], bounds: list[int], data: st.DataObject
) -> None:
    """Chunks are copied before statement 1, between the two, or after statement 2. Each stream ends at a statement."""
    steps, states = history(choices)
    first = data.draw(st.integers(0, len(steps)))
    second = data.draw(st.integers(first, len(steps)))
    copied_in = [data.draw(st.integers(0, 2)) for _ in range(len(bounds) + 1)]
    limits = [(0, first), (first, second), (second, len(steps))]
    highs = [data.draw(st.integers(*limits[part])) for part in copied_in]
    target: dict[Literals, Literals] = {}
    for part, (begin, end) in enumerate(limits):
        for number, high in enumerate(highs):
            if copied_in[number] == part:
                target.update(rows_of(_chunk_of(states[high], bounds, number)))
        known = [high if copied_in[number] <= part else _NEVER for number, high in enumerate(highs)]
        changes = [change_of(step, at) for at, step in enumerate(steps)][begin:end]
        for change in _handover(bounds, known).apply(changes, _offset):
            _apply(target, change)
    assert target == rows_of(states[-1])


def _chunk_of(state: State, bounds: list[int], number: int) -> State:
    places = numeric_places([(b"%d" % bound,) for bound in bounds], [(b"%d" % key,) for key in state])
    return {key: state[key] for key, place in zip(state, places, strict=True) if place == number}


def test_an_update_over_two_chunks_counts_for_the_key_that_is_not_held() -> None:
    steps, _ = history([(1, 1, 0), (2, 1, 20)])
    update = change_of(steps[1], 5)
    [deleted] = _handover([10], [3, 9]).apply([update], _offset)
    assert (deleted.kind, deleted.before, deleted.after) == (ChangeKind.DELETE, row_of(1, 1000), ())
    [inserted] = _handover([10], [9, 3]).apply([update], _offset)
    assert (inserted.kind, inserted.before, inserted.after) == (ChangeKind.INSERT, (), row_of(20, 1001))
    assert _handover([10], [3, 4]).apply([update], _offset) == [update]
    assert _handover([10], [8, 9]).apply([update], _offset) == []


def test_the_bounds_of_many_chunks_are_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[object] = []

    def count(bound: tuple[bytes, ...]) -> tuple[int, ...]:
        converted.append(bound)
        return numbers(bound)

    monkeypatch.setattr(handover_module, "numbers", count)
    handover = _handover(list(range(1, 1000)), [1, *[9] * 999])
    steps, _ = history([(1, 1, 0), (2, 1, 20)])
    for _ in range(3):
        handover.apply([change_of(steps[1], 5)], _offset)
    assert len(converted) == 999 + 3 * 2


def test_a_table_that_was_not_in_the_snapshot_counts() -> None:
    handover = Handover(_ENDPOINT, "s1", {}, (SourcePosition("f.1", 0), RelayOffset(1, 0)), RelayOffset(1, 99))
    steps, _ = history([(1, 1, 0)])
    assert handover.apply([change_of(steps[0], 5)], _offset) == [change_of(steps[0], 5)]


def _stored(number: int, lower: int | None, upper: int | None, high: HighWatermark | None) -> StoredChunk:
    def bound(value: int | None) -> tuple[bytes, ...]:
        return () if value is None else (b"%d" % value,)

    loaded = None if high is None else ChunkResult(1, 1, 0.1, high)
    return StoredChunk(0, Chunk(number, bound(lower), bound(upper)), loaded)


def test_positions_of_another_relay_log_are_located_once_each() -> None:
    asked: list[int] = []

    def locate(position: SourcePosition) -> RelayOffset:
        asked.append(position.pos)
        return RelayOffset(2, position.pos)

    here = HighWatermark(SourcePosition("f.1", 7), "this", RelayOffset(2, 70))
    other = HighWatermark(SourcePosition("f.1", 9), "other", RelayOffset(8, 1))
    unknown = HighWatermark(SourcePosition("f.1", 5))
    stored = [_stored(0, None, 1, other), _stored(1, 1, 2, unknown), _stored(2, 2, 3, here), _stored(3, 3, None, other)]
    handover = build_handover(stored, [PLAN], _ENDPOINT, "task", "s1", "this", locate)
    assert asked == [5, 9]
    marks = handover.tables[PLAN.shard]
    assert [offset.byte for offset in marks.highs] == [9, 5, 70, 9]
    assert handover.lowest == (SourcePosition("f.1", 5), RelayOffset(2, 5))
    assert handover.done_at == RelayOffset(2, 70)


def test_an_unfinished_snapshot_is_not_handed_over() -> None:
    mark = HighWatermark(SourcePosition("f.1", 7), "this", RelayOffset(2, 70))
    for stored in (
        [],
        [_stored(0, None, 5, mark)],
        [_stored(0, None, 5, None), _stored(1, 5, None, mark)],
    ):
        try:
            build_handover(stored, [PLAN], _ENDPOINT, "task", "s1", "this", lambda _: RelayOffset(1, 1))
        except ShardmergeError as error:
            assert error.spec is errors.snapshot.INCOMPLETE
        else:
            raise AssertionError(stored)
