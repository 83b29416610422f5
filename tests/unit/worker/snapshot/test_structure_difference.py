"""Tests which differences of a table's structure are changes, and which are other words of another server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.snapshot.unit import structure_difference


def _table(*columns: Column) -> Table:
    return Table("shard", "t", columns, (0,), "PRIMARY", (("id",),), has_foreign_keys=False, engine="InnoDB")


MARIADB = _table(
    Column("id", ValueKind.INTEGER, "int(11)", nullable=False),
    Column("y", ValueKind.YEAR, "year(4)", nullable=True),
    Column("s", ValueKind.STRING, "varchar(30)", nullable=True, charset="utf8mb4", collation="utf8mb4_uca1400_ai_ci"),
)
MYSQL = _table(
    Column("id", ValueKind.INTEGER, "int", nullable=False),
    Column("y", ValueKind.YEAR, "year", nullable=True),
    Column("s", ValueKind.STRING, "varchar(30)", nullable=True, charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
)


@pytest.mark.parametrize(("before", "now"), [(MARIADB, MYSQL), (MYSQL, MARIADB)], ids=["to MySQL", "to MariaDB"])
def test_other_words_of_another_server_are_no_change(before: Table, now: Table) -> None:
    assert structure_difference(before, now, computed=True) == ""
    assert "column id was int" in structure_difference(before, now)


@pytest.mark.parametrize(
    "changed",
    [
        replace(MYSQL.columns[2], type_text="varchar(31)"),
        replace(MYSQL.columns[2], charset="latin1"),
        replace(MYSQL.columns[2], nullable=False),
        replace(MYSQL.columns[2], name="other"),
    ],
    ids=["length", "character set", "nullable", "name"],
)
def test_a_change_is_one_in_any_words(changed: Column) -> None:
    assert structure_difference(MARIADB, _table(*MYSQL.columns[:2], changed), computed=True)


def test_another_order_is_a_change() -> None:
    first, second, third = MYSQL.columns
    assert (
        structure_difference(MARIADB, _table(first, third, second), computed=True) == "the columns are in another order"
    )
