"""``partition id``: it never makes one id of two, and says what does not fit (test_mapping_table.py has the cases)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.table_plan import PartitionId
from shardmerge.worker.rules.column_mapping import partition_id


@pytest.mark.parametrize(
    ("schema", "table", "arguments", "says"),
    [
        ("s_128", "t_1", ["1", "s_", "t_"], "schema s_128: what follows s_ is 128, but must be at most 127"),
        ("s_1", "t_256", ["1", "s_", "t_"], "must be at most 255"),
        ("s_1", "t_1", ["16", "s_", "t_"], "instance is 16, but must be at most 15"),
        ("s_a", "t_1", ["1", "s_", "t_"], "is not a number: 'a'"),
        ("s_", "t_1", ["1", "s_x", "t_"], "does not begin with s_x"),
        ("s_-1", "t_1", ["1", "s_", "t_"], "is not a number"),
        ("s_+1", "t_1", ["1", "s_", "t_"], "is not a number"),
        ("s_1_0", "t_1", ["1", "s_", "t_"], "is not a number"),
        ("s_²", "t_1", ["1", "s_", "t_"], "is not a number"),
        ("s_٣", "t_1", ["1", "s_", "t_"], "is not a number"),
        ("s_" + "9" * 5000, "t_1", ["1", "s_", "t_"], "must be at most 127"),
        ("s_1", "t", ["1", "s_", "t_"], "table t does not begin with t_"),
        ("s_", "t_1", ["1", "s", "t", "_"], "is not a number: ''"),
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
