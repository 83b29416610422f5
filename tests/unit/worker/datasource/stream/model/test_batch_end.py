"""Where batches of mysql-cdc are divided among tasks."""

from __future__ import annotations

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.datasource.stream.model.batch_end import LEAST_BYTES, cuts_of, parts_of


def _at(byte: int, file: int = 1) -> SourcePosition:
    return SourcePosition(f"b.{file:06}", byte)


ENDS = [(LEAST_BYTES * number // 4, _at(number)) for number in range(1, 32)]


def test_cuts_are_ends_of_groups_at_equal_distances() -> None:
    assert cuts_of(LEAST_BYTES * 8, ENDS, 1) == ()
    assert cuts_of(LEAST_BYTES * 8, ENDS, 2) == (_at(16),)
    assert cuts_of(LEAST_BYTES * 8, ENDS, 4) == (_at(8), _at(16), _at(24))


def test_a_part_is_not_small() -> None:
    assert cuts_of(LEAST_BYTES * 2 - 1, ENDS, 8) == ()
    assert cuts_of(LEAST_BYTES * 2, ENDS, 8) == (_at(4),)


def test_one_large_transaction_is_not_divided() -> None:
    assert cuts_of(LEAST_BYTES * 8, [], 4) == ()
    assert cuts_of(LEAST_BYTES * 8, [(LEAST_BYTES * 7, _at(9))], 4) == (_at(9),)


def test_parts_cover_the_batch_without_overlap() -> None:
    assert parts_of(_at(4), _at(4), (_at(3),)) == []
    assert parts_of(_at(4), _at(9), ()) == [(_at(4), _at(9))]
    cuts = (_at(2), _at(6), _at(5, 2), _at(9, 3))
    assert parts_of(_at(4), _at(8, 3), cuts) == [(_at(4), _at(6)), (_at(6), _at(5, 2)), (_at(5, 2), _at(8, 3))]
