"""Statements of the sources as they run at a target whose keys have extracted columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.table_text import read_index
from shardmerge.worker.ddl.execute.added_keys import TargetKeys, with_extracted_columns, with_extracted_keys
from shardmerge.worker.ddl.sql.table_definition import parse_table_definition
from shardmerge.worker.target.tables.extracted_keys import KeyExtension

KEYS = TargetKeys(
    KeyExtension(("c",), frozenset({"own"})),
    (
        read_index("PRIMARY KEY (`id`,`c`)"),
        read_index("UNIQUE KEY `u` (`a`,`b`,`c`)"),
        read_index("UNIQUE KEY `o` (`own`)"),
        read_index("UNIQUE KEY `by_c` (`c`)"),
    ),
)
A = "ALTER TABLE `m`.`t` "


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (A + "ADD UNIQUE (a)", A + "ADD UNIQUE (a, `c`)"),
        (A + "ADD CONSTRAINT x UNIQUE KEY y USING BTREE (a(3) ASC, `b`) COMMENT ')'",
         A + "ADD CONSTRAINT x UNIQUE KEY y USING BTREE (a(3) ASC, `b`, `c`) COMMENT ')'"),
        (A + "DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)", A + "DROP PRIMARY KEY, ADD PRIMARY KEY (a, b, `c`)"),
        (A + "ADD UNIQUE ((lower(a)), b)", A + "ADD UNIQUE ((lower(a)), b, `c`)"),
        (A + "ADD UNIQUE (OWN, b)", A + "ADD UNIQUE (OWN, b)"),
        (A + "ADD UNIQUE (a, C)", A + "ADD UNIQUE (a, C)"),
        (A + "ADD INDEX (a), ADD FULLTEXT (b)", A + "ADD INDEX (a), ADD FULLTEXT (b)"),
        (A + "ADD x INT UNIQUE", A + "ADD x INT, ADD UNIQUE KEY (`x`, `c`)"),
        (A + "ADD COLUMN IF NOT EXISTS x VARCHAR(10) UNIQUE KEY DEFAULT 'UNIQUE' COMMENT 'KEY' AFTER b, ADD y INT;",
         A + "ADD COLUMN IF NOT EXISTS x VARCHAR(10) DEFAULT 'UNIQUE' COMMENT 'KEY' AFTER b, ADD y INT, "
         "ADD UNIQUE KEY (`x`, `c`)"),
        (A + "ADD x INT NOT NULL PRIMARY KEY FIRST", A + "ADD x INT NOT NULL FIRST, ADD PRIMARY KEY (`x`, `c`)"),
        (A + "ADD x INT KEY", A + "ADD x INT, ADD PRIMARY KEY (`x`, `c`)"),
        (A + "ADD (x INT UNIQUE, UNIQUE k (a), y INT, PRIMARY KEY (y))",
         A + "ADD (x INT, UNIQUE k (a, `c`), y INT, PRIMARY KEY (y, `c`)), ADD UNIQUE KEY (`x`, `c`)"),
        (A + "MODIFY a BIGINT UNIQUE, CHANGE b `k``ey` INT UNIQUE",
         A + "MODIFY a BIGINT, CHANGE b `k``ey` INT, ADD UNIQUE KEY (`a`, `c`), ADD UNIQUE KEY (`k``ey`, `c`)"),
        (A + "ADD `unique` INT, ADD `key` INT DEFAULT (1), ADD own BIGINT UNIQUE",
         A + "ADD `unique` INT, ADD `key` INT DEFAULT (1), ADD own BIGINT UNIQUE"),
        ("CREATE UNIQUE INDEX k USING BTREE ON `m`.`t` (a, b) COMMENT '('",
         "CREATE UNIQUE INDEX k USING BTREE ON `m`.`t` (a, b, `c`) COMMENT '('"),
        ("CREATE INDEX k ON `m`.`t` (a)", "CREATE INDEX k ON `m`.`t` (a)"),
        ("DROP INDEX k ON `m`.`t`", "DROP INDEX k ON `m`.`t`"),
        (A + "DROP COLUMN a", A + "DROP COLUMN a"),
        (A + "DROP COLUMN a, DROP COLUMN B", A + "DROP COLUMN a, DROP COLUMN B, DROP INDEX `u`"),
        (A + "DROP COLUMN a, DROP COLUMN b, DROP KEY U", A + "DROP COLUMN a, DROP COLUMN b, DROP KEY U"),
        (A + "DROP COLUMN id", A + "DROP COLUMN id, DROP PRIMARY KEY"),
        (A + "DROP COLUMN id, DROP PRIMARY KEY, ADD z INT PRIMARY KEY",
         A + "DROP COLUMN id, DROP PRIMARY KEY, ADD z INT, ADD PRIMARY KEY (`z`, `c`)"),
        (A + "DROP COLUMN own", A + "DROP COLUMN own"),
    ],
)  # fmt: skip
def test_statements(given: str, expected: str) -> None:
    assert with_extracted_columns(given, 0, KEYS) == expected
    assert with_extracted_columns(given, 0, TargetKeys()) == given


def test_quotes_of_the_statement_s_sql_mode() -> None:
    assert with_extracted_columns(A + 'ADD "a" INT UNIQUE', 4, KEYS) == A + 'ADD "a" INT, ADD UNIQUE KEY (`a`, `c`)'


def test_structures_of_shard_tables() -> None:
    items = ("`Id` int NOT NULL", "`a` int", "PRIMARY KEY (`Id`)", "UNIQUE KEY `u` (`a`)", "KEY `k` (`a`)")
    text = "CREATE TABLE `t` (\n  " + ",\n  ".join(items) + "\n)"
    plain = parse_table_definition(CreateStatement(text, "utf8mb4_bin"))
    made = with_extracted_keys(plain, KEYS.extension)
    assert made.primary_key == "PRIMARY KEY (`id`,`c`)"
    assert [(index.text, index.columns) for index in made.indexes] == [
        ("UNIQUE KEY `u` (`a`,`c`)", ("a", "c")),
        ("KEY `k` (`a`)", ("a",)),
    ]
    assert replace(made, primary_key=plain.primary_key, indexes=plain.indexes) == plain
    assert with_extracted_keys(plain, KeyExtension()) == plain
