"""``partition id``: the layout, and that it never makes one id of two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.plan import PartitionId
from worker.rules.column_mapping import partition_id


def test_the_layout_of_dm() -> None:
    assert partition_id("s_2", "t_3", ["1", "s_", "t_"], True) == PartitionId(1 << 59 | 2 << 52 | 3 << 44, 44)
    assert partition_id("s_2", "t_3", ["1", "s", "t", "_"], True) == PartitionId(1 << 59 | 2 << 52 | 3 << 44, 44)


def test_parts_left_out_take_no_bits() -> None:
    assert partition_id("s_2", "t_3", ["", "s_", "t_"], True) == PartitionId(2 << 56 | 3 << 48, 48)
    assert partition_id("s_2", "t_3", ["1", "", "t_"], True) == PartitionId(1 << 59 | 3 << 51, 51)
    assert partition_id("s_2", "t_3", ["1", "s_", ""], True) == PartitionId(1 << 59 | 2 << 52, 52)
    assert partition_id("s", "t", ["15", "", ""], True) == PartitionId(15 << 59, 59)


def test_a_name_that_is_only_the_prefix_has_number_zero() -> None:
    assert partition_id("s", "t_3", ["1", "s", "t", "_"], True) == PartitionId(1 << 59 | 3 << 44, 44)


def test_case_of_prefixes() -> None:
    assert partition_id("S_2", "T_3", ["1", "s_", "t_"], False) == partition_id("s_2", "t_3", ["1", "s_", "t_"], True)
    with pytest.raises(ValueError, match="does not begin with s_"):
        partition_id("S_2", "t_3", ["1", "s_", "t_"], True)


@pytest.mark.parametrize(
    ("schema", "table", "arguments", "says"),
    [
        ("s_128", "t_1", ["1", "s_", "t_"], "schema s_128: what follows s_ is 128, but must be at most 127"),
        ("s_1", "t_256", ["1", "s_", "t_"], "must be at most 255"),
        ("s_1", "t_1", ["16", "s_", "t_"], "instance is 16, but must be at most 15"),
        ("s_a", "t_1", ["1", "s_", "t_"], "is no number: 'a'"),
        ("s_", "t_1", ["1", "s_x", "t_"], "does not begin with s_x"),
        ("s_-1", "t_1", ["1", "s_", "t_"], "is no number"),
        ("s_+1", "t_1", ["1", "s_", "t_"], "is no number"),
        ("s_1_0", "t_1", ["1", "s_", "t_"], "is no number"),
        ("s_²", "t_1", ["1", "s_", "t_"], "is no number"),
        ("s_٣", "t_1", ["1", "s_", "t_"], "is no number"),
        ("s_" + "9" * 5000, "t_1", ["1", "s_", "t_"], "must be at most 127"),
        ("s_1", "t", ["1", "s_", "t_"], "table t does not begin with t_"),
        ("s_", "t_1", ["1", "s", "t", "_"], "is no number: ''"),
    ],
)
def test_what_does_not_fit(schema: str, table: str, arguments: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        partition_id(schema, table, arguments, True)
    assert says in str(caught.value)


SHARD = st.tuples(st.integers(0, 15), st.integers(0, 127), st.integers(0, 255))
LEFT_OUT = st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any)


@given(SHARD, SHARD, LEFT_OUT, st.data())
def test_distinct_rows_never_get_one_id(
    one: tuple[int, int, int], two: tuple[int, int, int], given_parts: tuple[bool, bool, bool], data: st.DataObject
) -> None:
    def plan(shard: tuple[int, int, int]) -> PartitionId:
        instance, schema, table = given_parts
        arguments = [str(shard[0]) if instance else "", "s_" if schema else "", "t_" if table else ""]
        return partition_id(f"s_{shard[1]}", f"t_{shard[2]}", arguments, True)

    first, second = plan(one), plan(two)
    assert first.bits == second.bits == 63 - 4 * given_parts[0] - 7 * given_parts[1] - 8 * given_parts[2]
    edge = (1 << first.bits) - 1
    ids = st.integers(0, edge) | st.sampled_from([0, 1, edge - 1, edge])
    id_one, id_two = data.draw(ids), data.draw(ids)

    def counted(shard: tuple[int, int, int]) -> list[int]:
        return [number for number, part in zip(shard, given_parts, strict=True) if part]

    whole_one, whole_two = first.prefix | id_one, second.prefix | id_two
    assert (whole_one == whole_two) == ((counted(one), id_one) == (counted(two), id_two))
    assert 0 <= whole_one < 1 << 63
    assert whole_one & edge == id_one
