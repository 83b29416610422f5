"""The columns that routes extract from names in the unique keys of a created target table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.mysql.create_table import CONSTANT_TYPE
from shardmerge.worker.core.sql.table_text import read_create_table, read_index
from shardmerge.worker.core.table_plan import ColumnPlan, Constant, ExtractInKey, TablePlan
from shardmerge.worker.target.tables.extracted_keys import (
    KeyExtension,
    added_keys,
    comparable_text,
    created_keys,
    with_extracted_columns,
)
from tests.unit.worker.snapshot.shards import PLAN, VALUE

AUTO, ALWAYS, NEVER = ExtractInKey.AUTO, ExtractInKey.ALWAYS, ExtractInKey.NEVER


def plan(in_key: ExtractInKey = AUTO, own: str = "", most: int = 64) -> TablePlan:
    constant = tuple(ColumnPlan(-1, VALUE, name, Constant("x", most)) for name in ("c_table", "c_source"))
    return replace(
        PLAN, columns=(*PLAN.columns, *constant), extract_in_key=in_key, own_columns=frozenset(filter(None, [own]))
    )


CREATION = f"""CREATE TABLE IF NOT EXISTS `m`.`t` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `na``me` varchar(10) DEFAULT 'a) PRIMARY KEY (`',
  `c_table` {CONSTANT_TYPE} NOT NULL,
  `c_source` {CONSTANT_TYPE} NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `u (x` (`na``me`(5),`id` DESC) USING HASH COMMENT 'x (y)',
  UNIQUE KEY `f` ((lower(`na``me`)),`id`),
  KEY `k` (`id`),
  FULLTEXT KEY `t` (`na``me`),
  CHECK (`id` > 0)
) ENGINE=InnoDB"""


def test_every_unique_key_gets_the_columns_at_its_end() -> None:
    short = CONSTANT_TYPE.replace("256", "64")
    assert with_extracted_columns(CREATION, plan()) == CREATION.replace(CONSTANT_TYPE, short).replace(
        "PRIMARY KEY (`id`)", "PRIMARY KEY (`id`,`c_table`,`c_source`)"
    ).replace("`id` DESC)", "`id` DESC,`c_table`,`c_source`)").replace(
        "(lower(`na``me`)),`id`)", "(lower(`na``me`)),`id`,`c_table`,`c_source`)"
    )


def test_a_key_with_values_of_its_own_stays() -> None:
    made = with_extracted_columns(CREATION.replace(",`id` DESC", ""), plan(own="id"))
    assert [(key.name, key.columns, key.prefixes) for key in read_create_table(made).unique_keys] == [
        ("", ("id",), (0,)),
        ("u (x", ("na`me", "c_table", "c_source"), (5, 0, 0)),
        ("f", ("id",), (0,)),
    ]
    assert "PRIMARY KEY (`id`,`c_table`" in with_extracted_columns(CREATION, plan(ALWAYS, own="id"))


@pytest.mark.parametrize("changed", [plan(NEVER), PLAN], ids=["never", "an earlier version's task"])
def test_a_table_without_them_is_created_as_before(changed: TablePlan) -> None:
    assert with_extracted_columns(CREATION, changed) is CREATION


def test_columns_keep_their_length_in_a_table_whose_keys_do_not_have_them() -> None:
    keyless = CREATION.replace("  PRIMARY KEY (`id`),\n", "").replace("UNIQUE ", "")
    assert with_extracted_columns(keyless, plan()) == keyless


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        pytest.param([], ("c_table", "c_source"), id="no key: as for a created table"),
        pytest.param([("id", "C_Table", "c_source")], ("c_table", "c_source"), id="a created table"),
        pytest.param([("id",)], (), id="a table of an earlier version"),
        pytest.param([("id", "c_source"), ("v",)], ("c_source",), id="a table made by hand"),
        pytest.param([("id", "c_source"), ("c_table", "v")], ("c_table", "c_source"), id="keys of several kinds"),
    ],
)
def test_a_key_that_is_added_follows_the_keys_of_the_table(
    present: list[tuple[str, ...]], expected: tuple[str, ...]
) -> None:
    found = added_keys(plan(), present)
    assert found.of(["email"]) == expected
    # The same after the statement: a repetition of it must be the same text.
    assert added_keys(plan(), [*present, ("email", *expected)]).of(["email"]) == expected
    assert added_keys(plan(NEVER), present).of(["email"]) == ()


def test_keys_with_own_values_do_not_decide() -> None:
    own = plan(own="id")
    assert added_keys(own, [("id",)]).of(["email"]) == ("c_table", "c_source")
    assert added_keys(own, [("id",), ("email",)]).of(["other"]) == ()
    assert added_keys(own, [("id",), ("email", "c_table")]).of(["other", "ID"]) == ()


def test_only_columns_that_are_missing_are_added() -> None:
    assert created_keys(plan()).of(["C_SOURCE", "id"]) == ("c_table",)
    assert KeyExtension().of(["id"]) == ()
    key = read_index("UNIQUE KEY `a(` (`b`(3)) COMMENT ')'")
    assert key.extended(["c`"]) == read_index("UNIQUE KEY `a(` (`b`(3),`c```) COMMENT ')'")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("t_1", "T_1", True), ("é", "E", True), ("a ", "a", True), ("1", "01", False), ("ß", "ss", True)],
)
def test_texts_that_a_collation_may_treat_as_equal(one: str, other: str, same: bool) -> None:
    assert (comparable_text(one) == comparable_text(other)) is same
