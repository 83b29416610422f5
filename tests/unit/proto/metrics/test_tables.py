"""Tests the bound on series for each target table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.metrics.tables import OTHER, Demand, PerTable, Share, TableName, shared_out, with_others

_OTHER = TableName(OTHER, OTHER)


def _tables(count: int) -> dict[TableName, int]:
    return {TableName("s", f"t{number}"): 1 for number in range(count)}


def test_tables_beyond_the_limit_are_one_series() -> None:
    found = with_others(_tables(100), lambda shown: 103 - sum(shown))
    assert len(found) == 101
    assert found[_OTHER] == 3
    assert sum(found.values()) == 103


def test_off_has_one_series() -> None:
    assert with_others({}, lambda shown: 5 - sum(shown)) == {_OTHER: 5}


def test_a_table_with_the_name_of_the_others_is_one_of_them() -> None:
    found = with_others({**_tables(2), _OTHER: 7}, lambda shown: 12 - sum(shown))
    assert found == {**_tables(2), _OTHER: 10}


@pytest.mark.parametrize("per_table", list(PerTable))
def test_all_tasks_together_are_bounded(per_table: PerTable) -> None:
    found = shared_out({f"t{number}": Demand(1024, 16) for number in range(100)}, {}, per_table)
    assert sum(share.tables * share.lanes for share in found.values()) <= per_table.total
    assert found["t0"].tables == min(1024, per_table.limit, per_table.total // 16)
    assert found["t99"] == Share(0, 16, is_final=True)


def test_a_task_gets_what_another_one_has_left_only_before_it_lacks_a_table() -> None:
    many, few = Demand(100, 16), Demand(20, 16)
    one = shared_out({"a": many, "b": few, "c": few}, {}, PerTable.AUTO)
    assert [one[task].tables for task in "abc"] == [100, 20, 5]
    assert [one[task].is_final for task in "abc"] == [False, False, True]
    two = shared_out({"b": Demand(60, 16), "c": Demand(60, 16), "d": few}, one, PerTable.AUTO)
    assert [two[task].tables for task in "bcd"] == [60, 5, 20]


def test_a_task_that_copies_its_history_first_has_no_lanes_yet() -> None:
    before = shared_out({f"t{number}": Demand(0, 1) for number in range(100)}, {}, PerTable.AUTO)
    found = shared_out({f"t{number}": Demand(100, 16) for number in range(100)}, before, PerTable.AUTO)
    assert [found[f"t{number}"] for number in range(3)] == [
        Share(100, 16, is_final=False),
        Share(25, 16, is_final=True),
        Share(0, 16, is_final=True),
    ]
    assert _series(found) == PerTable.AUTO.total


def test_more_lanes_leave_less_for_new_tables() -> None:
    before = shared_out({"a": Demand(100, 1), "b": Demand(10, 1)}, {}, PerTable.AUTO)
    found = shared_out({"b": Demand(50, 1), "a": Demand(100, 19)}, before, PerTable.AUTO)
    assert found == {"a": Share(100, 19, is_final=False), "b": Share(50, 1, is_final=False)}
    found = shared_out({"b": Demand(100, 1), "a": Demand(100, 20)}, found, PerTable.AUTO)
    assert found == {"a": Share(100, 20, is_final=False), "b": Share(50, 1, is_final=True)}


_DEMANDS = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(Demand, st.integers(0, 300), st.integers(1, 64)), min_size=1
)


@given(st.lists(_DEMANDS, min_size=1, max_size=8), st.sampled_from(PerTable))
def test_new_series_never_exceed_the_bound_and_none_vanishes(
    scrapes: list[dict[str, Demand]], per_table: PerTable
) -> None:
    """Tables and lanes may become more or fewer between two scrapes. Only more lanes can exceed the bound: the series
    of a counter must not vanish."""
    before: dict[str, Share] = {}
    for demands in scrapes:
        found = shared_out(demands, before, per_table)
        assert found.keys() == demands.keys()
        for task, share in found.items():
            known = before.get(task, Share(0, 0, is_final=False))
            assert share.tables >= known.tables
            assert share.lanes == max(known.lanes, demands[task].lanes)
            assert share.tables == known.tables or not known.is_final
        kept = {task: before[task].tables if task in before else 0 for task in found}
        if any(share.tables > kept[task] for task, share in found.items()):
            assert _series(found) <= per_table.total
        before = found


def _series(shares: dict[str, Share]) -> int:
    return sum(share.tables * share.lanes for share in shares.values())


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 300), min_size=1),
        min_size=1,
        max_size=8,
    )
)
def test_no_counter_falls_while_its_task_exists(scrapes: list[dict[str, int]]) -> None:
    shares: dict[str, Share] = {}
    tables: dict[str, int] = {}
    for scrape in scrapes:
        # A task's tables never become fewer while it exists.
        tables = {task: max(count, tables.get(task, 0)) for task, count in scrape.items()}
        before = {task: share for task, share in shares.items() if task in tables}
        shares = shared_out({task: Demand(count, 4) for task, count in tables.items()}, before, PerTable.AUTO)
        for task, share in shares.items():
            known = before.get(task)
            if known is not None:
                assert share.tables >= known.tables
                assert share.tables == known.tables or not known.is_final
        assert sum(share.tables * share.lanes for share in shares.values()) <= PerTable.AUTO.total
