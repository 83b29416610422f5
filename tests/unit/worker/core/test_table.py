"""Tests a table's structure."""

from __future__ import annotations

from shardmerge.worker.core.table import Table
from tests.support.plans import integer


def test_without_columns_the_key_is_the_same() -> None:
    columns = (integer("new"), integer("a"), integer("id"), integer("part"))
    table = Table("d", "t", columns, (2, 3), "PRIMARY", (("id", "part"),), has_foreign_keys=False, engine="InnoDB")
    left = table.without_columns(("new",))
    assert [column.name for column in left.columns] == ["a", "id", "part"]
    assert [left.columns[at].name for at in left.key] == ["id", "part"]
    assert table.without_columns(()) == table
