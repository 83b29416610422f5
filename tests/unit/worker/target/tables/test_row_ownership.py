"""Which rows of the target are a shard's: where that is not certain, nothing is called extra."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, Constant, PartitionId, TablePlan
from shardmerge.worker.target.tables.row_ownership import (
    AllRows,
    ExtractedTexts,
    KeyRange,
    NotSeparable,
    owned_rows,
    separated_rows,
    source_conditions,
    stray_condition,
)
from shardmerge.worker.verify.compare.compared_tables import ComparedTable, NotCompared, compared_table
from tests.unit.worker.snapshot.shards import ID, PLAN, VALUE

TARGET = Table("merged", "t", (ID, VALUE), (0,), "PRIMARY", (("id",),), False, "InnoDB")


def shard(number: int, prefix: int | None, bits: int = 44, target: str = "t") -> TablePlan:
    mapping = None if prefix is None else PartitionId(prefix, bits)
    columns = (ColumnPlan(0, ID, "id", mapping), ColumnPlan(1, VALUE, "v"))
    return replace(PLAN, shard=number, target_table=target, columns=columns)


def test_the_only_shard_owns_everything() -> None:
    one, other = shard(0, None), shard(1, None, target="elsewhere")
    assert owned_rows(one, [one, other]) == AllRows()
    assert stray_condition(one, [one, other]) is None


def test_the_only_shard_owns_its_range_where_the_target_has_rows_of_unknown_tables() -> None:
    one = shard(0, 1 << 44)
    assert separated_rows(one, [one]) == KeyRange("id", 1 << 44, (2 << 44) - 1)
    by_name, unmapped = extracted(0, c="1"), shard(0, None)
    assert separated_rows(by_name, [by_name]) == ExtractedTexts((("c", "1"),))
    assert isinstance(separated_rows(unmapped, [unmapped]), NotSeparable)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), min_size=2, max_size=6))
def test_ranges_are_owned_only_if_no_two_overlap(made: list[tuple[int, int]]) -> None:
    plans = [shard(number, prefix << bits, bits) for number, (prefix, bits) in enumerate(made)]
    sets = [set(range(prefix << bits, (prefix + 1) << bits)) for prefix, bits in made]
    disjoint = sum(map(len, sets)) == len(set[int]().union(*sets))
    for plan, ids in zip(plans, sets, strict=True):
        owned = owned_rows(plan, plans)
        assert owned == (KeyRange("id", min(ids), max(ids)) if disjoint else owned)
        assert isinstance(owned, KeyRange if disjoint else NotSeparable)


def test_columns_that_refer_to_other_tables_or_hold_null_identify_no_shard() -> None:
    for mapping, column in (
        (PartitionId(1 << 44, 44, is_shared=True), ID),
        (PartitionId(1 << 44, 44), replace(ID, nullable=True)),
    ):
        plan = replace(PLAN, columns=(ColumnPlan(0, column, "id", mapping), ColumnPlan(1, VALUE, "v")))
        assert isinstance(owned_rows(plan, [plan, shard(9, 2 << 44)]), NotSeparable)


def test_one_shard_without_partition_id_makes_all_uncertain() -> None:
    plans = [shard(0, 1 << 44), shard(1, None)]
    assert all(isinstance(owned_rows(plan, plans), NotSeparable) for plan in plans)
    found = compared_table(plans[0], TARGET, plans, strays=True)
    assert isinstance(found, ComparedTable)
    assert (found.by_range, found.stray) == (False, "")


def test_ranges_of_keys_are_compared_where_the_order_is_kept() -> None:
    plans = [shard(0, 1 << 44), shard(1, 2 << 44)]
    found = compared_table(plans[0], TARGET, plans, strays=True)
    assert isinstance(found, ComparedTable)
    assert found.by_range
    assert found.stray == (
        f"NOT COALESCE(`id` BETWEEN {1 << 44} AND {(2 << 44) - 1} OR `id` BETWEEN {2 << 44} AND {(3 << 44) - 1}, 0)"
    )
    unknown = compared_table(plans[0], TARGET, "a source has not begun", strays=True)
    assert isinstance(unknown, ComparedTable)
    assert (unknown.by_range, unknown.owned) == (False, NotSeparable("a source has not begun"))


def test_what_cannot_be_compared_reports_why() -> None:
    plan = shard(0, None)
    text = Column("v", ValueKind.STRING, "varchar(9)", True, charset="utf8mb4")
    for changed, target, word in (
        (replace(plan, key=()), TARGET, "key"),
        (replace(plan, table=replace(plan.table, engine="MyISAM")), TARGET, "MyISAM"),
        (plan, None, "does not exist"),
        (plan, replace(TARGET, columns=(ID,)), "missing"),
        (plan, replace(TARGET, columns=(ID, text)), "at the source, varchar(9) at the target"),
    ):
        found = compared_table(changed, target, [changed], strays=True)
        assert isinstance(found, NotCompared)
        assert word in found.why


def extracted(number: int, prefix: int | None = None, **texts: str) -> TablePlan:
    plan = shard(number, prefix)
    constant = tuple(ColumnPlan(-1, VALUE, name, Constant(text)) for name, text in texts.items())
    return replace(plan, columns=(*plan.columns, *constant))


def test_rows_are_known_by_the_texts_that_a_route_extracts() -> None:
    plans = [extracted(0, c="1", s="x"), extracted(1, c="2", s="x"), extracted(2, c="1", s="it's ö")]
    assert owned_rows(plans[0], plans) == ExtractedTexts((("c", "1"), ("s", "x")))
    last = owned_rows(plans[2], plans)
    assert isinstance(last, ExtractedTexts)
    assert last.condition == "`c` = '1' AND `s` = _utf8mb4 X'69742773c3b6'".replace("73c3b6", "7320c3b6")
    assert stray_condition(plans[0], plans[:2]) == "NOT COALESCE(`c` = '1' AND `s` = 'x' OR `c` = '2' AND `s` = 'x', 0)"
    found = compared_table(plans[0], TARGET, plans, strays=False)
    assert isinstance(found, NotCompared)  # the target lacks the columns


def test_texts_that_may_be_equal_or_are_not_in_all_rows_tell_nothing() -> None:
    for plans in (
        [extracted(0, c="t_1"), extracted(1, c="T_1")],
        [extracted(0, c="1"), shard(1, None)],
        [extracted(0, c="1"), extracted(1, d="2")],
    ):
        assert all(isinstance(owned_rows(plan, plans), NotSeparable) for plan in plans), plans
        assert stray_condition(plans[0], plans) is None
    ranges = [extracted(0, 1 << 44, c="1"), extracted(1, 2 << 44, c="1")]
    assert isinstance(owned_rows(ranges[0], ranges), KeyRange)
    common = [extracted(0, c="1", d="x"), extracted(1, C="2")]
    assert owned_rows(common[0], common) == ExtractedTexts((("c", "1"),))


def sources_of(value: int | None, conditions: Mapping[str, str]) -> list[str]:
    """The sources whose conditions a row meets, as an SQL server evaluates them."""
    with closing(sqlite3.connect(":memory:")) as server:
        server.execute("CREATE TABLE t (id INTEGER)")
        server.execute("INSERT INTO t VALUES (?)", (value,))
        return [
            source
            for source, condition in conditions.items()
            if server.execute(f"SELECT COUNT(*) FROM t WHERE {condition or 1}").fetchone() == (1,)
        ]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=6))
def test_each_row_is_of_one_source_where_ids_separate_the_sources(made: list[tuple[str, int, int]]) -> None:
    plans = [
        replace(shard(number, prefix << bits, bits), source=source)
        for number, (source, prefix, bits) in enumerate(made)
    ]
    ids = {
        source: {
            id_ for owner, prefix, bits in made if owner == source for id_ in range(prefix << bits, prefix + 1 << bits)
        }
        for source, _, _ in made
    }
    found = source_conditions(plans)
    disjoint = sum(map(len, ids.values())) == len(set[int]().union(*ids.values()))
    assert (found is None) == (not disjoint and len(ids) > 1)
    if found is None:
        return
    assert source_conditions(plans[::-1]) == found
    for value in (None, *range(60)):
        owners = sources_of(value, found)
        assert len(owners) == 1
        assert all(owners == [source] for source, own in ids.items() if value in own)


def test_each_row_is_of_one_source_where_texts_separate_the_sources() -> None:
    def of(source: str, number: int, **texts: str) -> TablePlan:
        return replace(extracted(number, None, **texts), source=source)

    # One column is enough, and shard tables of one source may have the same text.
    assert source_conditions([of("a", 0, s="x", c="1"), of("a", 1, s="x", c="2"), of("b", 0, s="it's", c="1")]) == {
        "a": "NOT COALESCE((`s`) IN ((_utf8mb4 X'69742773')), 0)",
        "b": "(`s`) IN ((_utf8mb4 X'69742773'))",
    }
    crossed = [of("a", 0, s="1", c="1"), of("a", 1, s="2", c="2"), of("b", 0, s="1", c="2"), of("b", 1, s="2", c="1")]
    both = {
        "a": "NOT COALESCE((`c`, `s`) IN (('1', '2'), ('2', '1')), 0)",
        "b": "(`c`, `s`) IN (('1', '2'), ('2', '1'))",
    }
    assert source_conditions(crossed) == source_conditions(crossed[::-1]) == both
    for mixed in (
        [of("a", 0, s="x"), of("b", 0, s="X")],
        [of("a", 0, s="x"), of("b", 0, c="y")],
        [of("a", 0, s="x"), replace(shard(0, None), source="b")],
        [*crossed, of("b", 2, s="2", c="2")],
    ):
        assert source_conditions(mixed) is None


def test_ids_that_refer_to_other_tables_separate_sources_and_null_does_not() -> None:
    for shared, nullable, found in ((True, False, True), (False, True, False), (True, True, False)):
        plans = [
            replace(
                PLAN,
                source=source,
                columns=(
                    ColumnPlan(0, replace(ID, nullable=nullable), "buyer", PartitionId(prefix << 44, 44, shared)),
                ),
            )
            for source, prefix in (("a", 1), ("b", 2))
        ]
        assert (source_conditions(plans) is not None) is found
