"""Tests the bound on series for each target table."""

from __future__ import annotations

from operator import add

from shardmerge.proto.metrics.tables import OTHER, PerTable, TableName, bounded

_OTHER = TableName(OTHER, OTHER)


def _tables(count: int) -> dict[TableName, int]:
    return {TableName("s", f"t{number}"): 1 for number in range(count)}


def test_tables_beyond_the_limit_are_one_series() -> None:
    found = bounded(_tables(103), PerTable.AUTO, add)
    assert len(found) == 101
    assert found[_OTHER] == 3
    assert sum(found.values()) == 103


def test_a_table_keeps_its_series_when_others_appear() -> None:
    before, after = bounded(_tables(100), PerTable.AUTO, add), bounded(_tables(200), PerTable.AUTO, add)
    assert before.items() <= after.items()
    assert _OTHER not in before


def test_off_has_one_series() -> None:
    assert bounded(_tables(5), PerTable.OFF, add) == {_OTHER: 5}
    assert bounded(_tables(5), PerTable.ON, add) == _tables(5)
