"""Whatever happens between two reads: no false difference, and every difference of an unchanged key is found."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.snapshot.reader.fixup import key_of
from shardmerge.worker.verify.compare.canonical_values import ComparedColumn
from shardmerge.worker.verify.compare.judge import (
    Different,
    Extra,
    Missing,
    Row,
    candidates,
    diff_rows,
    differing_columns,
)
from shardmerge.worker.verify.compare.keys import RowKey
from tests.unit.worker.snapshot.shards import PLAN, Step, change_of, history

COLUMNS = (
    ComparedColumn("id", ValueKind.INTEGER, "", "", False, False),
    ComparedColumn("v", ValueKind.INTEGER, "", "", False, False),
)
BASE = 5 << 44
_CHOICES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11), st.integers(0, 11)), max_size=60)


def key_at(number: int) -> RowKey:
    return RowKey((b"%d" % (BASE | number),), (b"%d" % number,))


def row_at(number: int, value: int | None) -> Row:
    values = (b"%d" % number, None if value is None else b"%d" % value)
    return Row(values, values)


def rows_at(state: Mapping[int, int | None]) -> dict[Literals, Row]:
    return {key_at(number).target: row_at(number, value) for number, value in state.items()}


def lists_of(rows: Mapping[Literals, Row]) -> dict[Literals, list[Row]]:
    return {key: [row] for key, row in rows.items()}


def touched_by(steps: list[Step]) -> set[Literals]:
    changes = [change_of(step, 0) for step in steps]
    return {key_of(PLAN, image) for change in changes for image in (change.before, change.after) if image}


@given(
    _CHOICES,
    st.lists(st.floats(0, 1), min_size=5, max_size=5),
    st.dictionaries(st.integers(0, 11), st.one_of(st.none(), st.integers(90, 99))),
)
def test_only_planted_differences_of_keys_that_stood_still(
    choices: list[tuple[int, int, int]], moments: list[float], planted: dict[int, int | None]
) -> None:
    """Low watermark, the source's read, high watermark, the target's read, then the source's end. Wrong values are
    planted at the target (None: the row is missing) that the stream has not overwritten since."""
    steps, states = history(choices)
    low, seen, high, there, end = sorted(int(moment * len(steps)) for moment in moments)
    source, target = dict(states[seen]), dict(states[there])
    for key, value in planted.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
    touched = touched_by(steps[low:end])
    assert low <= high
    verdict = diff_rows(
        [key_at(number) for number in range(12)], rows_at(source), lists_of(rows_at(target)), touched, COLUMNS
    )
    expected: set[tuple[type, int]] = set()
    for key in range(12):
        if key_at(key).target in touched:
            continue
        ours, theirs = states[there].get(key), target.get(key)
        if ours != theirs:
            expected.add((Missing if theirs is None else Extra if ours is None else Different, key))
    assert {(type(item), int(item.key.source[0])) for item in verdict.findings} == expected
    assert {key.target for key in verdict.still_changing} == {key_at(number).target for number in range(12)} & touched


def test_each_further_row_of_a_key_is_extra() -> None:
    """The target may distinguish texts that are one key at the source."""
    key = key_at(1)
    rows = {key.target: [row_at(1, 6), row_at(1, 5), row_at(1, 7)]}
    assert diff_rows([key], rows_at({1: 5}), rows, (), COLUMNS).findings == (Extra(key), Extra(key))


def test_null_and_empty_and_nothing_are_three_things() -> None:
    key = key_at(1)
    for ours, theirs in ((None, 0), (0, None)):
        verdict = diff_rows([key], rows_at({1: ours}), lists_of(rows_at({1: theirs})), (), COLUMNS)
        [finding] = verdict.findings
        assert isinstance(finding, Different)
        assert finding.columns == (1,)


def test_floats_are_compared_as_numbers_but_for_the_sign_of_zero() -> None:
    columns = (ComparedColumn("d", ValueKind.DOUBLE, "", "", False, False),)

    def same(one: bytes, other: bytes) -> bool:
        return not differing_columns(Row((one,), (one,)), Row((other,), (other,)), columns)

    assert same(b"1e20", b"100000000000000000000")
    assert not same(b"0.1", b"0.10000000000000002")
    assert not same(b"0", b"-0")


def test_a_row_without_a_checksum_is_always_read() -> None:
    one, two, three = key_at(1), key_at(2), key_at(3)
    source = {one: b"a", two: None, three: b"c"}
    assert candidates(source, {one: [b"a"], two: [None], three: [b"c"]}) == [two]
    assert candidates(source, {one: [b"a"], two: [b"b"], three: [b"c", b"c"]}) == [two, three]
    assert candidates({}, {one: [b"a"]}) == [one]
