"""Which differences between a computed structure and the source's count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.ddl.structure.source_structure import difference

ID = Column("id", ValueKind.INTEGER, "int(11)", nullable=False)
TEXT = Column("s", ValueKind.STRING, "varchar(9)", nullable=True, charset="utf8mb4", collation="utf8mb4_general_ci")
LABEL = Column("e", ValueKind.ENUM, "enum('a','b')", nullable=True, labels=("a", "b"))
CREATE = (
    "CREATE TABLE `t` (\n  `id` int(11) NOT NULL,\n  `s` varchar(9) DEFAULT 'x',\n  `e` enum('a','b') DEFAULT NULL\n)"
)


def tracked(*columns: Column, text: str = CREATE) -> Tracked:
    table = Table("d", "t", columns, (0,), "PRIMARY", (("id",),), False, "InnoDB")
    return Tracked(table, CreateStatement(text, "utf8mb4_general_ci"))


COMPUTED = tracked(ID, TEXT, LABEL)


def test_equal_structures_do_not_differ() -> None:
    assert difference(COMPUTED, COMPUTED, like_target=True) is None


@pytest.mark.parametrize(
    ("collation", "differs"),
    [("latin1_swedish_ci", True), ("binary", True), ("utf8mb4_bin", False)],
)
def test_the_default_character_set_of_the_table_counts(collation: str, differs: bool) -> None:
    other = replace(COMPUTED, creation=replace(COMPUTED.creation, collation=collation))
    assert (difference(COMPUTED, other, like_target=True) is not None) is differs
    assert difference(COMPUTED, other, like_target=False) is None


@pytest.mark.parametrize(
    "present",
    [
        replace(ID, type_text="bigint(20)"),
        replace(ID, type_text="int(11) unsigned", unsigned=True),
        replace(ID, nullable=True),
        replace(ID, auto_increment=True),
    ],
)
def test_another_type_differs_between_all_servers(present: Column) -> None:
    assert difference(COMPUTED, tracked(present, TEXT, LABEL), like_target=False) is not None


def test_texts_and_labels_differ_between_all_servers() -> None:
    for columns in (
        (ID, replace(TEXT, charset="latin1"), LABEL),
        (ID, replace(TEXT, type_text="varchar(8)"), LABEL),
        (ID, TEXT, replace(LABEL, labels=("b", "a"))),
    ):
        assert difference(COMPUTED, tracked(*columns), like_target=False) is not None


def test_columns_in_another_order_differ() -> None:
    found = difference(COMPUTED, tracked(ID, LABEL, TEXT), like_target=False)
    assert found == ("the columns id, s, e", "the columns id, e, s")


def test_other_versions_describe_the_same_column_differently() -> None:
    present = tracked(
        replace(ID, type_text="int"),
        replace(TEXT, collation="utf8mb4_0900_ai_ci"),
        replace(LABEL, type_text="enum('a', 'b')"),
        text=CREATE.replace("int(11)", "int"),
    )
    assert difference(COMPUTED, present, like_target=False) is None
    assert difference(COMPUTED, present, like_target=True) is not None


def test_a_default_differs_between_servers_of_one_version() -> None:
    present = tracked(ID, TEXT, LABEL, text=CREATE.replace("'x'", "'y'"))
    assert difference(COMPUTED, present, like_target=True) == (
        "`s` varchar(9) DEFAULT 'x'",
        "`s` varchar(9) DEFAULT 'y'",
    )
    assert difference(COMPUTED, present, like_target=False) is None


def test_a_column_that_waits_for_a_lock_keeps_its_type_here() -> None:
    waiting = replace(ID, written_as="varchar(20)")
    present = tracked(replace(ID, kind=ValueKind.STRING, type_text="varchar(20)"), TEXT, LABEL)
    assert difference(tracked(waiting, TEXT, LABEL), present, like_target=False) is None


def test_a_default_collation_that_one_server_prints_is_no_difference() -> None:
    printed = CREATE.replace("varchar(9)", "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    assert difference(COMPUTED, tracked(ID, TEXT, LABEL, text=printed), like_target=True) is None
