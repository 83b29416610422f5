"""Keys of both sides become the same literals, and a mapped one leads back to the shard table's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, AddSuffix, ColumnPlan, Constant, TablePlan
from shardmerge.worker.verify.compare.canonical_values import NotComparable
from shardmerge.worker.verify.compare.keys import KeyReader, unmapped
from tests.unit.worker.snapshot.shards import PLAN, PREFIX, TABLE

TARGET = Table("merged", "t", TABLE.columns, (0,), "PRIMARY", (("id",),), False, "InnoDB")


@given(st.integers(0, (1 << 44) - 1))
def test_both_sides_make_the_same_key(number: int) -> None:
    reader = KeyReader(PLAN, TARGET)
    ours = reader.at_source([b"%d" % number])
    theirs = reader.at_target([b"%d" % (PREFIX + number)])
    assert ours == theirs
    assert ours.source == theirs.source == (b"%d" % number,)


def test_a_key_of_another_shard_leads_nowhere() -> None:
    reader = KeyReader(PLAN, TARGET)
    for value in (b"7", b"%d" % (PREFIX - 1), b"%d" % (PREFIX + (1 << 44))):
        assert reader.at_target([value]).source == ()


@given(st.text(max_size=10), st.text(max_size=5))
def test_affixes_come_off_again(text: str, affix: str) -> None:
    column = Column("k", ValueKind.STRING, "varchar(40)", False, charset="utf8mb4", collation="utf8mb4_bin")
    raw, more = text.encode(), affix.encode()
    assert unmapped(ColumnPlan(0, column, "k", AddPrefix(affix)), more + raw) == raw
    assert unmapped(ColumnPlan(0, column, "k", AddSuffix(affix)), raw + more) == raw
    if affix:
        assert unmapped(ColumnPlan(0, column, "k", AddSuffix(affix)), raw + more + b"x" + more[:-1]) != raw


def _with_key(source: Column, target: Column) -> str:
    table = replace(TABLE, columns=(source, TABLE.columns[1]))
    plan = TablePlan(0, "s1", table, "merged", "t", (ColumnPlan(0, source, "id"),), (0,))
    return KeyReader(plan, replace(TARGET, columns=(target, TABLE.columns[1]))).target_list


def test_a_wider_key_is_read_in_the_narrow_form() -> None:
    text = Column("id", ValueKind.STRING, "varchar(20)", False, charset="latin1", collation="latin1_swedish_ci")
    assert _with_key(text, replace(text, charset="utf8mb4")) == "CONVERT(`id` USING latin1)"
    assert _with_key(text, replace(text, type_text="varchar(99)")) == "`id`"
    number = Column("id", ValueKind.DECIMAL, "decimal(9,2)", False)
    assert _with_key(number, replace(number, type_text="decimal(20,4)")) == "CAST(`id` AS decimal(9,2))"
    integer = Column("id", ValueKind.INTEGER, "int(11)", False)
    assert _with_key(integer, replace(integer, type_text="bigint(20)")) == "`id`"


def _text_key(charset: str, mapping: AddPrefix | AddSuffix | None = None) -> KeyReader:
    column = Column("id", ValueKind.STRING, "varchar(20)", False, charset=charset, collation=f"{charset}_bin")
    table = replace(TABLE, columns=(column, TABLE.columns[1]))
    items = (ColumnPlan(0, column, "id", mapping),)
    plan = TablePlan(0, "s1", table, "merged", "t", items, (0,), text_as_utf8=True)
    target = replace(column, charset="utf8mb4", collation="utf8mb4_bin")
    return KeyReader(plan, replace(TARGET, columns=(target, TABLE.columns[1])))


@pytest.mark.parametrize("mapping", [None, AddPrefix("中-"), AddSuffix("-ß")])
def test_both_sides_make_the_same_key_of_a_text_that_the_target_has_as_utf8(
    mapping: AddPrefix | AddSuffix | None,
) -> None:
    reader = _text_key("latin1", mapping)
    assert reader.target_list == "`id`"
    before = mapping.text if isinstance(mapping, AddPrefix) else ""
    after = mapping.text if isinstance(mapping, AddSuffix) else ""
    ours = reader.at_source([b"\xdf'"])
    theirs = reader.at_target([f"{before}ß'{after}".encode()])
    assert ours == theirs
    assert ours.target == (f"'{before}ß\\'{after}'".encode(),)
    assert ours.source == theirs.source == (b"_latin1 X'DF27'",)


def test_a_key_that_the_source_cannot_have_leads_nowhere() -> None:
    for value in ("中".encode(), b"\xff"):
        assert _text_key("latin1").at_target([value]).source == ()


def test_a_character_with_two_codes_is_looked_for_by_the_common_one() -> None:
    reader = _text_key("cp932")
    assert reader.at_target(["∪".encode()]).source == (b"_cp932 X'81BE'",)
    with pytest.raises(ShardmergeError) as caught:
        reader.at_source([b"\x87\x9c"])
    assert caught.value.spec is errors.decode.SECOND_CODE


def test_labels_that_differ_identify_nothing() -> None:
    label = Column("id", ValueKind.ENUM, "enum('a')", False, charset="utf8mb4", labels=("a",))
    with pytest.raises(NotComparable):
        _with_key(label, replace(label, type_text="enum('b','a')", labels=("b", "a")))


def test_a_column_from_names_separates_keys_and_is_none_of_the_shard_tables() -> None:
    text = Column("c", ValueKind.STRING, "varchar(256)", False, charset="utf8mb4", collation="utf8mb4_bin")
    own = ColumnPlan(0, TABLE.columns[0], "id")
    plan = TablePlan(0, "s1", TABLE, "merged", "t", (own, ColumnPlan(-1, text, "c", Constant("x1"))), (0, 1))
    reader = KeyReader(plan, replace(TARGET, columns=(TABLE.columns[0], text)))
    theirs = reader.at_target([b"5", b"x1"])
    assert theirs.source == (b"5",)
    assert theirs == reader.at_source([b"5", b""])
    assert theirs.target != reader.at_target([b"5", b"x2"]).target
    assert reader.at_target([b"5", b"x2"]).source == ()
