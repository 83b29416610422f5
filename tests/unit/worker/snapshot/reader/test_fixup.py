"""I4: chunk at some moment after the low watermark, plus the changes up to the high watermark, is the chunk there."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.snapshot.reader.fixup import fix_up
from tests.unit.worker.snapshot.shards import PLAN, Step, change_of, history, row_of, rows_of

_CHOICES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11), st.integers(0, 11)), max_size=60)


@given(_CHOICES, st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), st.integers(0, 11), st.integers(1, 12))
def test_fix_up_gives_the_chunk_at_its_high_watermark(
    choices: list[tuple[int, int, int]], moments: tuple[float, float, float], lower: int, width: int
) -> None:
    steps, states = history(choices)
    low, seen, high = sorted(int(moment * len(steps)) for moment in moments)
    keys = range(lower, lower + width)

    def inside(asked: Sequence[Literals]) -> list[bool]:
        return [int(key[0]) in keys for key in asked]

    rows = rows_of({key: value for key, value in states[seen].items() if key in keys})
    fix_up(rows, PLAN, [change_of(step, 0) for step in steps[low:high]], inside)
    assert rows == rows_of({key: value for key, value in states[high].items() if key in keys})


def _inside_ten(keys: Sequence[Literals]) -> list[bool]:
    return [int(key[0]) < 10 for key in keys]


def test_an_update_that_keeps_the_key_gives_the_row_its_new_values() -> None:
    rows = rows_of({1: 7, 2: 8})
    fix_up(rows, PLAN, [change_of(Step((1, 7), (1, 9)), 0)], _inside_ten)
    assert rows == rows_of({1: 9, 2: 8})


def test_a_key_that_moves_out_of_the_chunk_leaves_it() -> None:
    rows = rows_of({1: 7, 2: 8})
    fix_up(rows, PLAN, [change_of(Step((1, 7), (50, 7)), 0)], _inside_ten)
    assert rows == rows_of({2: 8})


def test_a_key_that_moves_into_the_chunk_enters_it() -> None:
    rows = rows_of({2: 8})
    fix_up(rows, PLAN, [change_of(Step((50, 7), (1, 9)), 0)], _inside_ten)
    assert rows == rows_of({1: 9, 2: 8})


def test_other_spellings_of_a_key_are_keys_of_their_own() -> None:
    # UPDATE t SET k = 'A' WHERE k = 'a' under a case-insensitive collation, not yet and already seen by the SELECT.
    change = change_of(Step((1, 7), (2, 7)), 0)
    for seen in ({1: 7}, {2: 7}):
        rows = rows_of(seen)
        fix_up(rows, PLAN, [change], _inside_ten)
        assert list(rows.values()) == [row_of(2, 7)]
