"""Merged ids read back: the inverse of ``partition id``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.config.rules.partition_id import Parts, names_of, partition_of, shard_sql
from shardmerge.worker.rules.column_mapping import partition_id

SHARD = st.tuples(st.integers(0, 15), st.integers(0, 127), st.integers(0, 255))
GIVEN = st.tuples(st.booleans(), st.booleans(), st.booleans())


@given(SHARD, GIVEN, st.data())
def test_it_is_the_inverse_of_the_mapping(
    shard: tuple[int, int, int], given_parts: tuple[bool, bool, bool], data: st.DataObject
) -> None:
    instance, schema, table = given_parts
    arguments = [str(shard[0]) if instance else "", "s" if schema else "", "t" if table else "", "_"]
    mapping = partition_id(f"s_{shard[1]}", f"t_{shard[2]}", arguments, True)
    original = data.draw(st.integers(0, (1 << mapping.bits) - 1))
    wanted = [number if part else None for number, part in zip(shard, given_parts, strict=True)]
    assert partition_of(mapping.prefix | original, arguments) == Parts(wanted[0], wanted[1], wanted[2], original)
    mask = (1 << mapping.bits) - 1
    condition = f"id BETWEEN {mapping.prefix} AND {mapping.prefix | mask}"
    assert shard_sql("id", mapping.prefix | original, arguments) == condition


@pytest.mark.parametrize("number", [-1, 1 << 63])
def test_what_is_no_merged_id(number: int) -> None:
    with pytest.raises(ValueError, match="is no merged id"):
        partition_of(number, ["1", "s", "t"])


def test_names_that_have_a_number() -> None:
    assert names_of(None, "t", "_") == ()
    assert names_of(3, "t", "_") == ("t_3",)
    assert names_of(0, "t", "_") == ("t", "t_0")
