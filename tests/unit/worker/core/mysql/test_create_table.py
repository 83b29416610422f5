"""The merged CREATE TABLE from what different servers print."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.mysql.create_table import (
    column_item,
    fallback_collations,
    merged_create_table,
)
from shardmerge.worker.core.mysql.information_schema import parse_labels
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable, read_create_table
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import AddSuffix, ColumnPlan, PartitionId

ID = Column("id", ValueKind.INTEGER, "int(11) unsigned", False, unsigned=True)
NAME = Column("name", ValueKind.STRING, "varchar(10)", True, charset="utf8mb4", collation="utf8mb4_unicode_ci")
OTHER = Column("other", ValueKind.STRING, "text", True, charset="utf8", collation="utf8_general_ci")

MYSQL_57 = """CREATE TABLE `t_1` (
  `id` int(11) unsigned NOT NULL AUTO_INCREMENT COMMENT 'x, AUTO_INCREMENT (',
  `name` varchar(10) COLLATE utf8mb4_unicode_ci DEFAULT 'a''b\\'',
  `other` text CHARACTER SET utf8,
  PRIMARY KEY (`id`),
  UNIQUE KEY `n` (`name`(3),`id`) USING BTREE,
  KEY `fk` (`id`),
  CONSTRAINT `t_1_chk_1` CHECK ((`id` <> 3)),
  CONSTRAINT `FOREIGN KEY` FOREIGN KEY (`id`) REFERENCES `p` (`a`, `b`) ON DELETE CASCADE
) ENGINE=MyISAM AUTO_INCREMENT=9 DEFAULT CHARSET=utf8mb4 ROW_FORMAT=FIXED COMMENT='it''s; COMMENT=''x'''
/*!50100 PARTITION BY RANGE (id)
(PARTITION p0 VALUES LESS THAN (10) ENGINE = MyISAM) */"""


def test_what_mysql_57_prints() -> None:
    text = merged_create_table(
        MYSQL_57,
        (ID, NAME, OTHER),
        (
            ColumnPlan(0, ID, "id", PartitionId(0, 44)),
            ColumnPlan(1, NAME, "name", AddSuffix("-é")),
            ColumnPlan(2, OTHER, "other"),
        ),
        "`m`.`t`",
        "utf8mb4_general_ci",
    )
    assert (
        text
        == """CREATE TABLE IF NOT EXISTS `m`.`t` (
  `id` bigint unsigned NOT NULL COMMENT 'x, AUTO_INCREMENT (',
  `name` varchar(12) COLLATE utf8mb4_unicode_ci DEFAULT 'a''b\\'',
  `other` text CHARACTER SET utf8 COLLATE utf8_general_ci,
  PRIMARY KEY (`id`),
  UNIQUE KEY `n` (`name`(3),`id`) USING BTREE,
  KEY `fk` (`id`),
  CHECK ((`id` <> 3))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci COMMENT='it''s; COMMENT=''x'''"""
    )


NUMBERED = Column("id", ValueKind.INTEGER, "int(11) unsigned", False, unsigned=True, auto_increment=True)


@pytest.mark.parametrize(
    ("items", "kind", "made"),
    [
        ("`id` int(11) unsigned NOT NULL AUTO_INCREMENT, PRIMARY KEY (`id`)", ValueKind.INTEGER, True),
        # After a statement of the source, the recorded structure lacks it.
        ("`id` int(11) unsigned NOT NULL COMMENT 'NOT NULL', KEY `a(` (`id`,`b`)", ValueKind.INTEGER, True),
        ("`id` int(11) unsigned NOT NULL AUTO_INCREMENT, KEY `id` (`b`,`id`)", ValueKind.INTEGER, False),
        ("`id` float unsigned NOT NULL AUTO_INCREMENT, PRIMARY KEY (`id`)", ValueKind.FLOAT, False),
    ],
)
def test_auto_increment_is_kept_where_the_target_can_have_it(items: str, kind: ValueKind, made: bool) -> None:
    column = replace(NUMBERED, kind=kind)
    text = merged_create_table(
        f"CREATE TABLE `t` ({items}) ENGINE=InnoDB AUTO_INCREMENT=9",
        (column,),
        (ColumnPlan(0, column, "no"),),
        "`m`.`t`",
        "latin1_bin",
        keep_auto_increment=True,
    )
    assert read_create_table(text).numbered == ("no" if made else "")
    assert ("NOT NULL AUTO_INCREMENT" in text) == made
    assert "AUTO_INCREMENT=9" not in text
    if made:
        assert "AUTO_INCREMENT" not in column_item(text, "NO", numbered=False)
        assert column_item(text, "NO", numbered=True).count("AUTO_INCREMENT") == 1


def test_version_comments_of_mysql_8_pass_through() -> None:
    column = Column("a", ValueKind.INTEGER, "int", True)
    text = merged_create_table(
        "CREATE TABLE `t` (\n  `a` int DEFAULT NULL /*!80023 INVISIBLE */\n) /*!50100 TABLESPACE `x` */ ENGINE=InnoDB",
        (column,),
        (ColumnPlan(0, column, "a"),),
        "`m`.`t`",
        "latin1_bin",
    )
    assert "`a` int DEFAULT NULL /*!80023 INVISIBLE */\n" in text
    assert text.endswith("ENGINE=InnoDB DEFAULT CHARSET=latin1 COLLATE=latin1_bin")


def test_a_collation_that_the_target_lacks_is_replaced_everywhere_but_in_text() -> None:
    column = Column("a", ValueKind.STRING, "text", True, charset="utf8mb4", collation="utf8mb4_0900_as_cs")
    text = merged_create_table(
        "CREATE TABLE `t` (`a` text COLLATE utf8mb4_0900_as_cs COMMENT 'COLLATE utf8mb4_0900_as_cs')",
        (column,),
        (ColumnPlan(0, column, "a"),),
        "`m`.`t`",
        "utf8mb4_0900_ai_ci",
        {"utf8mb4_0900_as_cs": "utf8mb4_bin", "utf8mb4_0900_ai_ci": "utf8mb4_uca1400_nopad_ai_ci"},
    )
    assert "`a` text COLLATE utf8mb4_bin COMMENT 'COLLATE utf8mb4_0900_as_cs'" in text
    assert text.endswith("DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_uca1400_nopad_ai_ci")


def test_a_target_without_invisible_columns_and_without_a_character_set() -> None:
    """TiDB: the columns become visible, and text of a character set that it lacks is utf8mb4."""
    columns = tuple(
        Column(name, ValueKind.STRING, "varchar(9)", True, charset="big5", collation="big5_chinese_ci") for name in "ab"
    )
    hidden = Column("c", ValueKind.INTEGER, "int", True)
    text = merged_create_table(
        "CREATE TABLE `t` (\n"
        "  `a` varchar(9) CHARACTER SET big5 COLLATE big5_chinese_ci DEFAULT 'CHARACTER SET big5',\n"
        "  `b` varchar(9) INVISIBLE DEFAULT NULL COMMENT ' INVISIBLE',\n  `c` int DEFAULT NULL /*!80023 INVISIBLE */\n"
        ") ENGINE=InnoDB",
        (*columns, hidden),
        tuple(ColumnPlan(at, column, column.name) for at, column in enumerate((*columns, hidden))),
        "`m`.`t`",
        "big5_chinese_ci",
        {"big5_chinese_ci": "utf8mb4_bin"},
        keep_invisible=False,
    )
    assert "`a` varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT 'CHARACTER SET big5'" in text
    assert "`b` varchar(9) DEFAULT NULL COMMENT ' INVISIBLE'" in text
    assert "`c` int DEFAULT NULL\n" in text
    assert text.endswith("DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin")


@pytest.mark.parametrize(
    ("collation", "others"),
    [
        ("big5_chinese_ci", ("big5_bin", "utf8mb4_bin")),
        ("utf8mb4_de_pb_0900_ai_ci", ("utf8mb4_nopad_bin", "utf8mb4_0900_bin", "utf8mb4_bin")),
        ("latin1_nopad_bin", ("latin1_0900_bin", "latin1_bin", "utf8mb4_0900_bin", "utf8mb4_bin")),
    ],
)
def test_fallbacks_of_a_target_without_character_sets(collation: str, others: tuple[str, ...]) -> None:
    assert tuple(dict.fromkeys(fallback_collations(collation, as_utf8=True))) == others


@pytest.mark.parametrize(
    ("collation", "others"),
    [
        (
            "utf8mb4_0900_ai_ci",
            ("utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_nopad_bin", "utf8mb4_0900_bin", "utf8mb4_bin"),
        ),
        ("utf8mb4_de_pb_0900_ai_ci", ("utf8mb4_nopad_bin", "utf8mb4_0900_bin", "utf8mb4_bin")),
        ("utf8mb4_0900_bin", ("utf8mb4_uca1400_nopad_bin", "utf8mb4_nopad_bin", "utf8mb4_bin")),
        ("utf8mb4_general_nopad_ci", ("utf8mb4_nopad_bin", "utf8mb4_0900_bin", "utf8mb4_bin")),
        ("utf8mb4_uca1400_ai_ci", ("utf8mb4_0900_ai_ci", "utf8mb4_bin")),
        ("utf8_general_ci", ("utf8mb3_general_ci", "utf8_bin")),
        ("utf8mb3_unicode_ci", ("utf8_unicode_ci", "utf8mb3_bin")),
        ("latin1_swedish_ci", ("latin1_bin",)),
        ("utf8mb4_bin", ()),
    ],
)
def test_stand_ins(collation: str, others: tuple[str, ...]) -> None:
    assert fallback_collations(collation) == others


def test_a_type_that_is_printed_differently_is_refused_rather_than_kept_narrow() -> None:
    with pytest.raises(UnreadableCreateTable):
        merged_create_table(
            MYSQL_57.replace("int(11) unsigned", "integer"),
            (ID, NAME, OTHER),
            (ColumnPlan(0, ID, "id", PartitionId(0, 44)),),
            "`m`.`t`",
            "utf8mb4_general_ci",
        )


def printed(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n").replace("\0", "\\0") + "'"


@given(st.lists(st.text(), min_size=1))
def test_labels_come_back_as_they_went_in(labels: list[str]) -> None:
    assert parse_labels(f"enum({','.join(printed(label) for label in labels)})") == tuple(labels)
