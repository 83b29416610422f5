"""The names of events that a statement is (tiflow pkg/binlog-filter/util.go, AstToDDLEvent; filter.go, EventType)."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.ddl.sql.ddl_event_names import events_of
from shardmerge.worker.ddl.sql.statement import parse_ddl

BEFORE = CreateStatement(
    "CREATE TABLE `t` (\n  `id` int(11) NOT NULL AUTO_INCREMENT,\n  `n` int(11) DEFAULT 5,\n"
    "  `v` varchar(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci DEFAULT NULL,\n  `d` decimal(10,4) NOT NULL,\n"
    "  `at` datetime(6) DEFAULT NULL,\n  PRIMARY KEY (`id`),\n  UNIQUE KEY `by_n` (`n`),\n  KEY `by_v` (`v`),\n"
    "  CONSTRAINT `fk` FOREIGN KEY (`n`) REFERENCES `o` (`id`),\n  CONSTRAINT `positive` CHECK (`n` > 0)\n"
    ") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
    "utf8mb4_general_ci",
)


def after(column: str, becomes: str) -> CreateStatement:
    """``BEFORE`` with another definition of a column."""
    lines = BEFORE.text.split("\n")
    made = [f"  `{column}` {becomes}," if line.startswith(f"  `{column}` ") else line for line in lines]
    return CreateStatement("\n".join(made), BEFORE.collation)


def parts(sql: str, *structures: CreateStatement | None) -> list[set[str]]:
    ddl = parse_ddl(sql, "s", 0)
    assert ddl is not None
    return [set(names) for names in events_of(ddl, sql, *structures).parts]


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("CREATE DATABASE d", "create database"),
        ("CREATE SCHEMA IF NOT EXISTS d", "create database"),
        ("DROP DATABASE d", "drop database"),
        ("ALTER DATABASE d COMMENT 'x'", "alter database"),
        ("CREATE TABLE t (id INT)", "create table"),
        ("CREATE TABLE t LIKE u", "create table"),
        ("DROP TABLE t, u", "drop table"),
        ("TRUNCATE t", "truncate table"),
        ("RENAME TABLE t TO u", "rename table"),
        ("CREATE UNIQUE INDEX i ON t (n)", "create index"),
        ("DROP INDEX i ON t", "drop index"),
    ],
)
def test_a_statement_is_named_by_its_first_words(sql: str, name: str) -> None:
    assert parts(sql) == [{name}]


@pytest.mark.parametrize(
    ("clause", "names"),
    [
        ("ADD COLUMN c INT", {"add column"}),
        ("ADD (c INT, d INT)", {"add column"}),
        ("DROP COLUMN c", {"drop column"}),
        ("MODIFY n BIGINT", {"modify column"}),
        ("MODIFY n INT FIRST", {"modify column", "modify columns order"}),
        ("MODIFY n INT AFTER v", {"modify column", "modify columns order"}),
        ("MODIFY n INT COMMENT 'FIRST'", {"modify column"}),
        ("MODIFY `first` INT", {"modify column"}),
        ("CHANGE n m INT", {"modify column", "rename column"}),
        ("CHANGE n N INT", {"modify column"}),
        ("RENAME COLUMN n TO m", {"rename column"}),
        ("ALTER n SET DEFAULT 7", {"set default value", "modify default value"}),
        ("ALTER n DROP DEFAULT", {"set default value", "modify default value"}),
        ("ADD INDEX (n)", set[str]()),
        ("ADD PRIMARY KEY (id)", {"add primary key"}),
        ("DROP PRIMARY KEY", {"drop primary key"}),
        ("RENAME INDEX by_n TO i", {"rename index"}),
        ("ALTER INDEX by_n INVISIBLE", {"alter index visibility"}),
        ("ADD CONSTRAINT f FOREIGN KEY (n) REFERENCES o (id)", {"add foreign key"}),
        ("DROP FOREIGN KEY f", {"drop foreign key"}),
        ("ADD CHECK (n > 0)", {"modify constraint"}),
        ("RENAME TO u", set[str]()),
        ("CONVERT TO CHARACTER SET latin1", {"modify table charset and collate"}),
        ("DEFAULT CHARSET latin1", {"modify table charset and collate"}),
        ("COLLATE = utf8mb4_bin", {"modify table charset and collate"}),
        ("COMMENT 'ENGINE'", {"modify table comment"}),
        ("ENGINE = InnoDB COMMENT 'x'", {"modify storage engine", "modify table comment"}),
        ("AUTO_INCREMENT = 7", {"rebase auto id"}),
        ("ADD PARTITION (PARTITION p VALUES LESS THAN (5))", {"add table partition"}),
        ("DROP PARTITION p", {"drop table partition"}),
        ("TRUNCATE PARTITION p", {"truncate table partition"}),
        ("REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (5))", {"reorganize table partition"}),
        ("REBUILD PARTITION p", {"rebuild table partition"}),
        ("COALESCE PARTITION 2", {"coalesce table partition"}),
        ("EXCHANGE PARTITION p WITH TABLE u", {"exchange table partition"}),
        ("PARTITION BY HASH (id) PARTITIONS 2", {"alter table partitioning"}),
        ("REMOVE PARTITIONING", {"remove table partitioning"}),
        ("FORCE", set[str]()),
    ],
)
def test_a_clause_has_finer_names(clause: str, names: set[str]) -> None:
    assert parts(f"ALTER TABLE t {clause}") == [{"alter table"} | names]


def test_several_clauses_are_a_multi_schema_change() -> None:
    both = {"alter table", "multi schema change"}
    assert parts("ALTER TABLE t ADD c INT, DROP COLUMN d, ALGORITHM=INPLACE") == [
        both | {"add column"},
        both | {"drop column"},
    ]


def test_a_schemas_charset_has_its_own_event() -> None:
    assert parts("ALTER DATABASE d CHARACTER SET latin1") == [{"alter database", "modify schema charset and collate"}]


@pytest.mark.parametrize(
    ("column", "becomes", "names"),
    [
        ("n", "bigint(20) DEFAULT 5", set[str]()),
        ("n", "int(5) DEFAULT 5", set[str]()),
        ("n", "smallint(6) DEFAULT 5", {"value range decrease"}),
        ("n", "int(10) unsigned DEFAULT 5", {"value range decrease"}),
        ("n", "varchar(20) DEFAULT '5'", {"value range decrease", "modify default value"}),
        ("n", "int(11) DEFAULT 6", {"modify default value"}),
        ("n", "int(11) NOT NULL DEFAULT 5", {"modify constraint"}),
        ("n", "decimal(10,0) DEFAULT 5", set[str]()),
        ("n", "decimal(8,0) DEFAULT 5", {"value range decrease"}),
        ("v", "varchar(10) CHARACTER SET latin1 COLLATE latin1_swedish_ci DEFAULT NULL", {"value range decrease"}),
        ("v", "varchar(30) CHARACTER SET latin1 COLLATE latin1_swedish_ci DEFAULT NULL", set[str]()),
        ("v", "char(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci DEFAULT NULL", set[str]()),
        ("v", "text CHARACTER SET latin1 COLLATE latin1_swedish_ci DEFAULT NULL", set[str]()),
        ("v", "varchar(20) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT NULL", {"modify collation"}),
        ("v", "varchar(20) DEFAULT NULL", {"modify charset", "modify collation"}),
        ("d", "decimal(12,4) NOT NULL", set[str]()),
        ("d", "decimal(10,2) NOT NULL", {"precision decrease"}),
        ("d", "decimal(10,6) NOT NULL", {"value range decrease"}),
        ("d", "decimal(6,2) NOT NULL", {"precision decrease", "value range decrease"}),
        ("d", "int(11) NOT NULL", {"precision decrease"}),
        ("at", "datetime DEFAULT NULL", {"precision decrease"}),
        ("at", "datetime(6) DEFAULT NULL COMMENT 'x'", set[str]()),
        ("id", "int(11) NOT NULL", {"remove auto increment"}),
    ],
)
def test_effects_of_a_definition_come_from_the_structures(column: str, becomes: str, names: set[str]) -> None:
    found = parts(f"ALTER TABLE t MODIFY {column} {becomes}", BEFORE, after(column, becomes))
    assert found == [{"alter table", "modify column"} | names]


@pytest.mark.parametrize(
    ("clause", "names"),
    [
        ("DROP INDEX by_n", {"drop unique key"}),
        ("DROP INDEX BY_V", set[str]()),
        ("DROP CONSTRAINT by_n", {"drop unique key"}),
        ("DROP CONSTRAINT fk", {"drop foreign key"}),
        ("DROP CONSTRAINT positive", {"modify constraint"}),
    ],
)
def test_kind_of_a_dropped_constraint_comes_from_the_structure(clause: str, names: set[str]) -> None:
    assert parts(f"ALTER TABLE t {clause}", BEFORE) == [{"alter table"} | names]
    assert parts(f"ALTER TABLE t {clause}") == [{"alter table"}]


def test_drop_index_of_a_unique_key() -> None:
    assert parts("DROP INDEX by_n ON t", BEFORE) == [{"drop index", "drop unique key"}]
    assert parts("DROP INDEX by_v ON t", BEFORE) == [{"drop index"}]
