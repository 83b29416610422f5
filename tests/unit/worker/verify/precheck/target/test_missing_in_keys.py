"""Which keys of an existing target lack extracted columns, the statement that adds them, and the length of keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.table_text import read_create_table, read_index
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, Constant, ExtractInKey, TablePlan
from shardmerge.worker.ddl.sql.common_type import ColumnType
from shardmerge.worker.verify.precheck.target.key_length import MARIADB, OTHERS, column_bytes
from shardmerge.worker.verify.precheck.target.missing_in_keys import (
    ExistingTarget,
    TooLong,
    collide,
    missing_columns,
    repair_statement,
    too_long,
)
from tests.unit.worker.snapshot.shards import PLAN, TABLE

_TEXT = Column("c", ValueKind.STRING, "varchar(64)", nullable=False, collation="utf8mb4_bin")
_LINE = "varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def plan(table: str, schema: str = "x", in_key: ExtractInKey = ExtractInKey.AUTO, own: str = "") -> TablePlan:
    texts = (("c_table", table), ("c_schema", schema))
    constant = tuple(ColumnPlan(-1, _TEXT, name, Constant(text, 64)) for name, text in texts)
    own_columns = frozenset(filter(None, [own]))
    return replace(PLAN, columns=(*PLAN.columns, *constant), extract_in_key=in_key, own_columns=own_columns)


def existing(*keys: str, plans: tuple[TablePlan, ...] = (), more: str = "", schema: str = "") -> ExistingTarget:
    items = [
        "`id` bigint NOT NULL AUTO_INCREMENT",
        "`v` varchar(700) DEFAULT NULL",
        f"`c_table` {_LINE} NOT NULL",
        schema or f"`c_schema` {_LINE} NOT NULL",
        *filter(None, [more]),
        *keys,
    ]
    creation = "CREATE TABLE `t` (\n  " + ",\n  ".join(items) + "\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
    return ExistingTarget(TABLE, CreateStatement(creation, "utf8mb4_bin"), plans or (plan("1"), plan("2")))


def lacking(target: ExistingTarget) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.key.name, each.columns) for each in missing_columns(target)]


BOTH = ("c_table", "c_schema")


def test_keys_without_the_columns() -> None:
    assert lacking(existing("PRIMARY KEY (`id`)", "UNIQUE KEY `u` (`v`(5))", "KEY `k` (`v`)")) == [
        ("", BOTH),
        ("u", BOTH),
    ]
    for in_key, own, expected in (
        (ExtractInKey.NEVER, "", []),
        (ExtractInKey.AUTO, "id", [("u", BOTH)]),
        (ExtractInKey.ALWAYS, "id", [("", BOTH), ("u", BOTH)]),
    ):
        of = (plan("1", in_key=in_key, own=own), plan("2", in_key=in_key, own=own))
        assert lacking(existing("PRIMARY KEY (`id`)", "UNIQUE KEY `u` (`v`)", plans=of)) == expected, in_key


def test_a_key_that_the_user_made_is_accepted_if_it_distinguishes_the_shard_tables() -> None:
    by_table, by_schema = "PRIMARY KEY (`id`,`c_table`)", "PRIMARY KEY (`id`,`C_Schema`)"
    assert lacking(existing(by_table)) == []
    assert lacking(existing(by_schema)) == [("", ("c_table",))]
    assert lacking(existing(by_schema, plans=(plan("1", "x"), plan("1", "y")))) == []
    assert lacking(existing(by_schema, plans=(plan("1", "x"), plan("2", "X ")))) == [("", ("c_table",))]


def test_a_key_with_a_column_of_the_target_alone_needs_none() -> None:
    own = "`nr` int NOT NULL"
    assert lacking(existing("PRIMARY KEY (`nr`)", "UNIQUE KEY `u` (`id`)", more=own)) == [("u", BOTH)]


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        (["PRIMARY KEY (`id`)"], True),
        (["PRIMARY KEY (`id`)", "UNIQUE KEY `u` (`v`,`c_table`)"], True),
        (["PRIMARY KEY (`id`,`c_table`)", "UNIQUE KEY `u` (`v`)"], False),
        (["UNIQUE KEY `u` (`id`)"], True),
    ],
)
def test_a_table_that_was_made_for_the_columns_gets_a_warning(keys: list[str], refused: bool) -> None:
    target = existing(*keys)
    found = read_create_table(target.creation.text).unique_keys
    assert collide(missing_columns(target), found, target.plans[0]) is refused


def statement(target: ExistingTarget) -> str | TooLong:
    return repair_statement(target, missing_columns(target), OTHERS)


def test_the_statement() -> None:
    assert statement(existing("PRIMARY KEY (`id`)", "UNIQUE KEY `u` (`v`(5)) USING BTREE COMMENT '('")) == (
        "ALTER TABLE `db`.`t` DROP PRIMARY KEY, ADD PRIMARY KEY (`id`,`c_table`,`c_schema`), "
        "DROP INDEX `u`, ADD UNIQUE KEY `u` (`v`(5),`c_table`,`c_schema`) USING BTREE COMMENT '('"
    )


@pytest.mark.parametrize(
    ("column", "clause"),
    [
        ("`c_schema` varchar(20) DEFAULT NULL", "MODIFY COLUMN `c_schema` varchar(20) NOT NULL, "),
        ("`c_schema` text", f"MODIFY COLUMN `c_schema` {_LINE} NOT NULL, "),
        ("`other` int", f"ADD COLUMN `c_schema` {_LINE} NOT NULL, "),
    ],
)
def test_a_column_that_no_key_can_have(column: str, clause: str) -> None:
    made = str(statement(existing("PRIMARY KEY (`id`)", schema=column)))
    made = made.replace(" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, D", " NOT NULL, D")
    clause = clause.replace(f"{_LINE} NOT NULL", "varchar(64) NOT NULL")
    assert made == f"ALTER TABLE `db`.`t` {clause}DROP PRIMARY KEY, ADD PRIMARY KEY (`id`,`c_table`,`c_schema`)"


def test_a_key_that_is_too_long_gets_shorter_columns_or_is_refused() -> None:
    long = "`c_schema` varchar(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
    made = statement(existing("PRIMARY KEY (`id`,`c_schema`)", schema=long, plans=(plan("1"), plan("1", "X"))))
    assert made == "ALTER TABLE `db`.`t` DROP PRIMARY KEY, ADD PRIMARY KEY (`id`,`c_schema`,`c_table`)"  # 3064 bytes
    made = str(statement(existing("UNIQUE KEY `u` (`v`(10))", schema=long.replace("700", "760"))))
    assert f"MODIFY COLUMN `c_schema` {_LINE} NOT NULL, DROP" in made
    assert f"MODIFY COLUMN `c_table` {_LINE} NOT NULL" in made
    found = statement(existing("UNIQUE KEY `u` (`v`)"))
    assert isinstance(found, TooLong)
    assert (found.key.name, found.found, found.limit) == ("u", "3312 bytes", "3072 bytes")
    target = existing("UNIQUE KEY `u` (`v`)")
    assert isinstance(repair_statement(target, missing_columns(target), MARIADB), str)


def test_a_created_table_with_a_key_that_is_too_long() -> None:
    def found(key: str) -> TooLong | None:
        return too_long(existing(key).creation, plan("1"), OTHERS)

    assert found("PRIMARY KEY (`id`,`c_table`)") is None
    assert found("UNIQUE KEY `u` (`v`)") is None  # as at the source
    assert found("UNIQUE KEY `u` (`v`,`c_table`)") is None
    long = "UNIQUE KEY `u` (`v`,`c_table`,`c_schema`)"
    assert found(long) == TooLong(read_index(long), BOTH, "3312 bytes", "3072 bytes")
    many = ",".join(f"`x{number}`" for number in range(16))
    refused = found(f"UNIQUE KEY `u` ({many},`c_table`)")
    assert isinstance(refused, TooLong)
    assert (refused.found, refused.limit) == ("17 columns", "16 columns")


@pytest.mark.parametrize(
    ("type_", "prefix", "count"),
    [
        (ColumnType("bigint", unsigned=True), 0, 8),
        (ColumnType("varchar", ("10",), charset="utf8mb4"), 0, 40),
        (ColumnType("varchar", ("10",), charset="latin1"), 0, 10),
        (ColumnType("text", charset="utf8mb3"), 7, 21),
        (ColumnType("blob"), 7, 7),
        (ColumnType("varbinary", ("16",)), 0, 16),
        (ColumnType("decimal", ("10", "2")), 0, 5),
        (ColumnType("decimal", ("65", "30")), 0, 30),
        (ColumnType("bit", ("9",)), 0, 2),
        (ColumnType("datetime", ("6",)), 0, 8),
        (ColumnType("timestamp"), 0, 4),
        (ColumnType("enum", ("'a'",), charset="utf8mb4"), 0, 2),
        (ColumnType("uuid"), 0, 16),
    ],
)
def test_bytes_of_columns(type_: ColumnType, prefix: int, count: int) -> None:
    assert column_bytes(type_, prefix) == count
