"""Tests partitions as servers print them: what is kept of the text, and which columns place the rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.target.tables.partition_clause import PartitionClause, clause_of, differing_clauses

HEAD = "CREATE TABLE `t` (\n  `id` int NOT NULL,\n  `a b` int COMMENT 'PARTITION BY x',\n  PRIMARY KEY (`id`)\n)"


def read(text: str) -> PartitionClause | None:
    return clause_of(f"{HEAD} ENGINE=InnoDB COMMENT='PARTITION BY y'\n{text}", ["id", "a b", "high"])


@pytest.mark.parametrize(
    ("printed", "kept", "columns", "by_value"),
    [
        (
            "/*!50100 PARTITION BY RANGE (id)\n(PARTITION p0 VALUES LESS THAN (10) ENGINE = InnoDB,\n"
            " PARTITION high VALUES LESS THAN MAXVALUE COMMENT = 'a  ENGINE = b' ENGINE = InnoDB) */",
            "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), "
            "PARTITION high VALUES LESS THAN MAXVALUE COMMENT = 'a  ENGINE = b')",
            {"id"},
            {"id"},
        ),
        (
            "/*!50100 PARTITION BY KEY */ /*!50611 ALGORITHM = 1 */ /*!50100 (id)\nPARTITIONS 3 */",
            "PARTITION BY KEY ALGORITHM = 1 (id) PARTITIONS 3",
            {"id"},
            set[str](),
        ),
        ("/*!50100 PARTITION BY KEY ()\nPARTITIONS 3 */", "PARTITION BY KEY () PARTITIONS 3", set[str](), set[str]()),
        (
            " PARTITION BY LIST  COLUMNS(`a b`)\nSUBPARTITION BY LINEAR HASH (`ID`)\n"
            "(PARTITION `p` VALUES IN ('x  */ y') DATA DIRECTORY = '/a b' ENGINE = Aria)",
            "PARTITION BY LIST COLUMNS(`a b`) SUBPARTITION BY LINEAR HASH (`ID`) (PARTITION `p` VALUES IN ('x  */ y'))",
            {"a b", "id"},
            {"a b"},
        ),
    ],
)
def test_what_servers_print(printed: str, kept: str, columns: set[str], by_value: set[str]) -> None:
    assert read(printed) == PartitionClause(kept, frozenset(columns), frozenset(by_value))


def test_other_methods_and_tables_without_partitions() -> None:
    found = read(" PARTITION BY SYSTEM_TIME LIMIT 100 \n(PARTITION `p` HISTORY ENGINE = InnoDB)")
    assert found is not None
    assert found.other == "SYSTEM_TIME"
    assert read("") is None


@given(st.text("ab'`( ,\\", max_size=9))
def test_literals_stay_as_they_are(value: str) -> None:
    literal = "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    found = read(f" PARTITION BY LIST COLUMNS (`a b`) (PARTITION `p` VALUES IN ({literal})  ENGINE = InnoDB)")
    assert found is not None
    assert found.text.endswith(f"VALUES IN ({literal}))")


def test_clauses_differ_only_by_more_than_their_spelling() -> None:
    mariadb = read(" PARTITION BY HASH (`id`)\nPARTITIONS 4")
    mysql = read("/*!50100 PARTITION BY hash (id)\nPARTITIONS 4 */")
    other = read(" PARTITION BY HASH (`id`)\nPARTITIONS 5")
    assert not differing_clauses({"a": mariadb, "b": mysql})
    assert differing_clauses({"a": other, "b": mysql, "c": mariadb, "d": None}) == (
        ("PARTITION BY HASH (`id`) PARTITIONS 4", ("b", "c")),
        ("PARTITION BY HASH (`id`) PARTITIONS 5", ("a",)),
        ("", ("d",)),
    )
