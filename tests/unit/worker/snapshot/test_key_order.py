"""Conditions on keys, and keys as numbers."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.rows.literal_text import comparable_expression
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.snapshot.key_order import (
    above,
    at_or_above,
    below,
    bound_columns,
    in_range,
    is_numeric,
    key_bound,
    numeric_places,
)
from shardmerge.worker.snapshot.source.watermarks import owned_gtids
from shardmerge.worker.snapshot.table_planner import MAX_WHOLE_BYTES, is_whole, needs_lock
from tests.unit.worker.snapshot.shards import PLAN, TABLE

_ENUM = Column("e", ValueKind.ENUM, "enum('b','a')", nullable=False, charset="utf8mb4", labels=("b", "a"))
_SET = Column("s", ValueKind.SET, "set('b','a')", nullable=False, charset="utf8mb4", labels=("b", "a"))
_TEXT = Column("k", ValueKind.STRING, "varchar(20)", nullable=False, charset="latin1", collation="latin1_swedish_ci")


@given(*[st.lists(st.integers(0, 3), min_size=3, max_size=3)] * 2)
def test_conditions_compare_like_rows(row: list[int], bound: list[int]) -> None:
    # SQLite is only a calculator here: AND, OR, <, = mean the same everywhere.
    names = [b"%d" % value for value in row]
    literals = tuple(b"%d" % value for value in bound)
    with sqlite3.connect(":memory:") as calculator:
        for condition, truth in (
            (above(names, literals), row > bound),
            (at_or_above(names, literals), row >= bound),
            (below(names, literals), row < bound),
        ):
            [(answer,)] = calculator.execute("SELECT " + condition.decode())
            assert bool(answer) is truth


def test_open_ends_need_no_condition() -> None:
    assert in_range([b"`id`"], (), ()) == b""
    assert in_range([b"`id`"], (b"-5",), ()) == b" WHERE (`id`>=-5)"
    assert in_range([b"`id`"], (b"-5",), (b"7",)) == b" WHERE (`id`>=-5) AND (`id`<7)"


def test_chunks_are_cut_by_the_key_columns_before_one_that_has_no_index_order() -> None:
    number = TABLE.columns[0]
    table = replace(TABLE, columns=(number, _SET, _TEXT), key=(0, 1, 2))
    assert bound_columns(table) == (number,)
    assert bound_columns(replace(table, key=(1, 0))) == ()
    assert bound_columns(replace(table, key=())) == ()


def test_enum_keys_compare_by_index() -> None:
    assert key_bound((_ENUM,), (b"'a'",)) == (b"2",)
    assert key_bound((_ENUM,), (b"'b'",)) == (b"1",)
    assert not is_numeric((_ENUM,))


def test_places_of_integers() -> None:
    bounds = [(b"-3",), (b"0",), (b"18446744073709551615",)]
    keys = [(b"-4",), (b"-3",), (b"-1",), (b"0",), (b"18446744073709551614",), (b"18446744073709551615",)]
    assert numeric_places(bounds, keys) == [0, 1, 1, 2, 2, 3]
    assert numeric_places([(b"1", b"5"), (b"2", b"0")], [(b"1", b"4"), (b"1", b"5"), (b"2", b"1")]) == [0, 1, 2]


def test_text_compares_in_its_columns_collation() -> None:
    assert (
        comparable_expression(_TEXT, b"_latin1 X'41'")
        == b"CONVERT(_latin1 X'41' USING latin1) COLLATE latin1_swedish_ci"
    )
    uuid = Column("u", ValueKind.BINARY, "uuid", False, length=16)
    assert comparable_expression(uuid, b"X'00'") == b"CAST(X'00' AS UUID)"


def test_owned_gtids_are_read_as_the_manual_shows_them() -> None:
    assert owned_gtids("") == frozenset()
    assert owned_gtids("3e11fa47-71ca:7#4:8#5,\n9f-1:1#9") == {"3e11fa47-71ca:7", "3e11fa47-71ca:8", "9f-1:1"}
    # With tags, as MySQL 9.7 shows them.
    assert owned_gtids("9f-1:1#2:abc:1#9:2#3:de:1#4") == {"9f-1:1", "9f-1:abc:1", "9f-1:abc:2", "9f-1:de:1"}


def test_a_table_is_read_whole_when_the_target_has_a_further_unique_key() -> None:
    two = replace(TABLE, unique_keys=(("id",), ("v",)))
    text = replace(TABLE, columns=(_TEXT, TABLE.columns[1]))
    assert not is_whole(PLAN)
    assert is_whole(replace(PLAN, one_lane=True)), "one that only the target has"
    assert is_whole(replace(PLAN, one_lane=True, table=two))
    assert not is_whole(replace(PLAN, table=two)), "one that only the source has"
    assert not is_whole(replace(PLAN, one_lane=True, table=text)), "one lane because of the collation"
    assert not is_whole(replace(PLAN, one_lane=True, table=replace(two, byte_estimate=MAX_WHOLE_BYTES + 1)))
    assert is_whole(replace(PLAN, table=replace(TABLE, engine="MyISAM")))
    assert is_whole(replace(PLAN, table=replace(TABLE, key=())))


def test_a_lock_is_needed_where_no_consistent_read_reports_its_position() -> None:
    keyless = replace(PLAN, table=replace(TABLE, key=()))
    flat = replace(PLAN, table=replace(TABLE, engine="MyISAM"))
    further = replace(PLAN, one_lane=True)
    for tells, locked in ((True, [flat]), (False, [keyless, flat, further])):
        assert [plan for plan in (PLAN, keyless, flat, further) if needs_lock(plan, reports_position=tells)] == locked


def test_an_enum_is_compared_by_lists() -> None:
    conditions = (
        (above, (b"0",), b"`e` IN (1,2)"),
        (above, (b"2",), b"`e` IN (3)"),
        (at_or_above, (b"2",), b"`e` IN (2)"),
        (below, (b"2",), b"`e` IN (0,1)"),
        (below, (b"0",), b"`e` IN (3)"),
    )
    for compared, bound, condition in conditions:
        assert compared([b"`e`"], bound, (_ENUM,)) == condition
    both = (_ENUM, TABLE.columns[0])
    assert above([b"`e`", b"`id`"], (b"1", b"7"), both) == b"`e` IN (2) OR (`e`=1 AND (`id`>7))"
    assert in_range([b"`e`"], (), (b"2",), (_ENUM,)) == b" WHERE (`e` IN (0,1))"
