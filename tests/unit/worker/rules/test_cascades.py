"""Tests which cascading foreign keys are derived, and the reasons why others are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.sql.foreign_keys import ForeignKeyAction
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, Mapping, PartitionId, RowFilter, TablePlan
from shardmerge.worker.rules.cascades import find_cascades

_IDS = PartitionId(1 << 44, 44)


def _plan(number: int, name: str, *columns: str, kind: ValueKind = ValueKind.INTEGER, **mapped: Mapping) -> TablePlan:
    made = tuple(Column(each, kind if each != "id" else ValueKind.INTEGER, "bigint", True) for each in columns)
    table = Table("s", name, made, (0,), "PRIMARY", (("id",),), False, "InnoDB")
    plans = tuple(ColumnPlan(at, each, each.name, mapped.get(each.name)) for at, each in enumerate(made))
    return TablePlan(number, "source", table, "all", name, plans, (0,), own_keys=True)


def _creation(*keys: str) -> str:
    items = ["  `id` bigint NOT NULL", "  PRIMARY KEY (`id`)", *(f"  CONSTRAINT {key}" for key in keys)]
    return "CREATE TABLE `t` (\n" + ",\n".join(items) + "\n) ENGINE=InnoDB"


_UP = "`up` FOREIGN KEY (`P`) REFERENCES `p` (`id`) ON DELETE CASCADE ON UPDATE SET NULL"
PARENT = _plan(0, "p", "id", id=_IDS)
CHILD = _plan(1, "c", "id", "p", id=_IDS, p=replace(_IDS, is_shared=True))


def test_a_key_that_is_derived() -> None:
    found = find_cascades((PARENT, CHILD), {0: _creation(), 1: _creation(_UP)})
    assert not found.refused
    [key] = found.keys.keys
    assert (key.parent, key.child, key.name, key.columns, key.to_columns) == (0, 1, "up", ("p",), ("id",))
    assert (key.on_delete, key.on_update) == (ForeignKeyAction.CASCADE, ForeignKeyAction.SET_NULL)


def test_a_key_that_changes_nothing_counts_not() -> None:
    creation = _creation("`up` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE RESTRICT")
    assert find_cascades((PARENT, CHILD), {1: creation}).keys.keys == ()


REFUSED = {
    "no part in the task": ((CHILD,), _UP),
    "SET DEFAULT": ((PARENT, CHILD), "`up` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE SET DEFAULT"),
    "filter or transform applies to s.p": ((replace(PARENT, skipped_kinds=8), CHILD), _UP),
    "filter or transform applies to s.c": ((PARENT, replace(CHILD, filters=(RowFilter("f", (0,), "id"),))), _UP),
    "is no integer": ((PARENT, _plan(1, "c", "id", "p", kind=ValueKind.STRING, id=_IDS)), _UP),
    "another mapping": ((PARENT, _plan(1, "c", "id", "p", id=_IDS)), _UP),
    "does not identify the shard table": ((PARENT, replace(CHILD, own_keys=False)), _UP),
    "is generated": ((PARENT, _plan(1, "c", "id", id=_IDS)), _UP),
}


@pytest.mark.parametrize("why", list(REFUSED))
def test_a_key_that_cannot_be_derived(why: str) -> None:
    plans, key = REFUSED[why]
    [refused] = find_cascades(plans, {1: _creation(key)}).refused
    assert (refused.table, refused.key) == ("s.c", "up")
    assert why in refused.why


def test_keys_that_share_a_column() -> None:
    other = "`too` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE SET NULL"
    [refused] = find_cascades((PARENT, CHILD), {1: _creation(_UP, other)}).refused
    assert refused.key == "too"
    assert "has one of its columns" in refused.why


def test_a_cycle_of_tables() -> None:
    back = "`back` FOREIGN KEY (`c`) REFERENCES `c` (`id`) ON DELETE CASCADE"
    parent = _plan(0, "p", "id", "c", id=_IDS, c=_IDS)
    refused = find_cascades((parent, CHILD), {0: _creation(back), 1: _creation(_UP)}).refused
    assert {item.key for item in refused} == {"up", "back"}
    assert "in a cycle" in refused[0].why


def test_a_table_that_refers_to_itself() -> None:
    own = "`own` FOREIGN KEY (`p`) REFERENCES `c` (`id`) ON DELETE CASCADE"
    assert not find_cascades((CHILD,), {1: _creation(own)}).refused


def test_a_column_that_is_set_to_null_and_referred_to() -> None:
    null = "`up` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE SET NULL"
    below = "`low` FOREIGN KEY (`q`) REFERENCES `c` (`p`) ON UPDATE CASCADE"
    grandchild = _plan(2, "g", "id", "q", id=_IDS, q=_IDS)
    [refused] = find_cascades((PARENT, CHILD, grandchild), {1: _creation(null), 2: _creation(below)}).refused
    assert "s.g (low)" in refused.why
