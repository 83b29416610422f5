"""Chunks cover every key exactly once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.snapshot.chunks import WHOLE, Chunk, cut, even_bounds, even_step, rows_per_chunk

_KEYS = st.integers(-(2**63), 2**64 - 1)


def _holds(chunk: Chunk, key: int) -> bool:
    return (not chunk.lower or int(chunk.lower[0]) <= key) and (not chunk.upper or key < int(chunk.upper[0]))


@given(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 5000),
    st.integers(1, 700),
    st.lists(_KEYS, max_size=20),
    st.lists(st.integers(-10, 5010), max_size=20),
)
def test_arithmetic_chunks_hold_every_integer_exactly_once(
    minimum: int, span: int, step: int, far: list[int], near: list[int]
) -> None:
    chunks = list(cut((b"%d" % value,) for value in even_bounds(minimum, minimum + span, step)))
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    for key in [minimum, minimum + span, *far, *(minimum + offset for offset in near)]:
        assert sum(_holds(chunk, key) for chunk in chunks) == 1
    for chunk in chunks[1:-1]:
        assert int(chunk.upper[0]) - int(chunk.lower[0]) == step


@given(st.integers(-1000, 1000), st.integers(0, 500), st.integers(1, 50), st.integers(0, 30))
def test_a_resumed_plan_covers_the_rest_exactly_once(minimum: int, span: int, step: int, kept: int) -> None:
    whole = list(cut((b"%d" % value,) for value in even_bounds(minimum, minimum + span, step)))
    first = whole[: min(kept, len(whole))]
    last = first[-1] if first else None
    # The restart sees another maximum and chooses another width.
    start = int(last.upper[0]) if last is not None and last.upper else minimum
    rest = list(cut(((b"%d" % value,) for value in even_bounds(start, minimum + span + 40, step + 3)), last))
    chunks = [*first, *rest]
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    for key in range(minimum - 5, minimum + span + 60):
        assert sum(_holds(chunk, key) for chunk in chunks) == 1
    assert chunks[-1].is_last


def test_a_table_without_bounds_is_one_chunk() -> None:
    assert list(cut(())) == [WHOLE]
    assert list(cut((), WHOLE)) == []


def test_keys_count_as_even_between_the_two_factors() -> None:
    assert even_step(1, 1_000_000, 1_000_000, 8096) == 8096
    assert even_step(1, 1_000_000, 500_000, 8096) == 16192
    assert even_step(1, 2_000_000_000, 1_000_000, 8096) is None, "large gaps"
    assert even_step(1, 1000, 1_000_000, 8096) is None, "an impossible estimate"
    assert even_step(1, 100, 100, 8096) is None, "one chunk is enough"
    assert even_step(0, 2**64 - 1, 2**62, 8096) == 8096 * 4


def test_chunks_of_wide_rows_have_fewer_rows() -> None:
    assert rows_per_chunk(8096, 0, 0, 1 << 20) == 8096
    assert rows_per_chunk(8096, 100, 100 << 10, 1 << 20) == 1024
    assert rows_per_chunk(8096, 10, 10 << 30, 1 << 20) == 1
