"""Literals of single values: text and wire agree, mappings keep their promise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.rows.row_literals import RowWriter, literal
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, AddSuffix, PartitionId
from tests.support.binlog import plan_of


def column(kind: ValueKind, type_text: str, **more: object) -> Column:
    return Column("c", kind, type_text, True, **more)  # pyright: ignore[reportArgumentType]


BIGINT = column(ValueKind.INTEGER, "bigint(20)")
TEXT = column(ValueKind.STRING, "varchar(50)", charset="utf8mb4")
LATIN = column(ValueKind.STRING, "varchar(50)", charset="latin1")


def table(one: Column) -> Table:
    return Table("shop_01", "order_02", (one,), (0,), "PRIMARY", (), False, "InnoDB")


def test_large_values_do_not_stay_in_the_buffer() -> None:
    for size in (10, 5_000_000, 3, 0, 300_000, 1_500_000):
        assert len(literal(TEXT, b"x" * size)) == size + 2


@pytest.mark.parametrize(
    ("one", "text", "expected"),
    [
        (BIGINT, None, b"NULL"),
        (BIGINT, b"-9223372036854775808", b"-9223372036854775808"),
        (BIGINT, b"00042", b"42"),
        (BIGINT, b"0000", b"0"),
        (column(ValueKind.DECIMAL, "decimal(10,3)"), b"0000001.500", b"1.500"),
        (column(ValueKind.DECIMAL, "decimal(10,3)"), b"-0.500", b"-0.500"),
        (column(ValueKind.DECIMAL, "decimal(10,0)"), b"000", b"0"),
        (column(ValueKind.DOUBLE, "double"), b"1e16", b"1e+16"),
        (column(ValueKind.DOUBLE, "double"), b"0", b"0.0"),
        (column(ValueKind.DOUBLE, "double"), b"-0", b"-0e0"),
        (column(ValueKind.YEAR, "year(4)"), b"0000", b"0"),
        (column(ValueKind.BINARY, "binary(3)", length=3), b"\1", b"X'010000'"),
        (column(ValueKind.BINARY, "blob"), b"", b"X''"),
        (column(ValueKind.ENUM, "enum('a','it''s')", labels=("a", "it's")), b"2", b"'it\\'s'"),
        (column(ValueKind.ENUM, "enum('a')", labels=("a",)), b"0", b"''"),
        (column(ValueKind.SET, "set('x','y','z')", labels=("x", "y", "z")), b"5", b"'x,z'"),
        (column(ValueKind.SET, "set('x','y','z')", labels=("x", "y", "z")), b"0", b"''"),
        (column(ValueKind.TIME, "time(6)"), b"-838:59:59.000000", b"'-838:59:59.000000'"),
    ],
)
def test_literals(one: Column, text: bytes | None, expected: bytes) -> None:
    assert literal(one, text) == expected


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (BIGINT, b""),
        (BIGINT, b"-"),
        (BIGINT, b"1.5"),
        (BIGINT, b"1 OR 1=1"),
        (BIGINT, b"0x10"),
        (column(ValueKind.DECIMAL, "decimal(10,3)"), b"1.2.3"),
        (column(ValueKind.DECIMAL, "decimal(10,3)"), b".5"),
        (column(ValueKind.DECIMAL, "decimal(10,3)"), b"5."),
        (column(ValueKind.DOUBLE, "double"), b"nan"),
        (column(ValueKind.DOUBLE, "double"), b"inf"),
        (column(ValueKind.DOUBLE, "double"), b"x"),
        (column(ValueKind.DATE, "date"), b"2024-01-0'"),
        (column(ValueKind.DATE, "date"), b"now()"),
        (column(ValueKind.ENUM, "enum('a')", labels=("a",)), b"2"),
        (column(ValueKind.SET, "set('a')", labels=("a",)), b"2"),
        (column(ValueKind.ENUM, "enum('a')", labels=("a",)), b"18446744073709551617"),
        (column(ValueKind.SET, "set('a')", labels=("a",)), b"18446744073709551617"),
        (column(ValueKind.BIT, "bit(1)"), b"-1"),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(one: Column, text: bytes) -> None:
    with pytest.raises(ShardmergeError) as caught:
        literal(one, text)
    assert caught.value.spec.name == "unreadable-value"


@given(st.integers(0, 19), st.integers(1, 44), st.integers(0, 2**44))
def test_partition_id_is_prefix_and_original_or_an_error(part: int, bits: int, original: int) -> None:
    prefix = part << 50
    for one, quote in ((BIGINT, b""), (TEXT, b"'")):
        writer = RowWriter(plan_of(table(one), {"c": PartitionId(prefix, bits)}), "s1")
        text = b"%d" % original
        if original < 1 << bits:
            assert writer.literals([text]) == (quote + b"%d" % (prefix + original) + quote,)
        else:
            with pytest.raises(ShardmergeError) as caught:
                writer.literals([text])
            assert caught.value.spec.name == "id-overflow"
            assert {"shop_01", "order_02", "c", str(original), str(bits)} <= set(caught.value.values.values())
        assert writer.source_key([text]) == (quote + text + quote,)


def test_partition_id_never_maps_a_negative_or_a_null() -> None:
    writer = RowWriter(plan_of(table(BIGINT), {"c": PartitionId(1 << 50, 44)}), "s1")
    with pytest.raises(ShardmergeError, match="-1 does not fit"):
        writer.literals([b"-1"])
    assert writer.literals([None]) == (b"NULL",)
    text = RowWriter(plan_of(table(TEXT), {"c": PartitionId(1 << 50, 44)}), "s1")
    for wrong in (b"12a", b"", b"-1", b" 1"):
        with pytest.raises(ShardmergeError):
            text.literals([wrong])


def test_prefix_and_suffix_are_written_in_the_column_s_character_set() -> None:
    def mapped(one: Column, mapping: AddPrefix | AddSuffix, text: bytes) -> bytes:
        return RowWriter(plan_of(table(one), {"c": mapping}), "s1").literals([text])[0]

    assert mapped(TEXT, AddPrefix("é'-"), b"x") == "'é\\'-x'".encode()
    assert mapped(TEXT, AddSuffix("-é"), b"x") == "'x-é'".encode()
    assert mapped(LATIN, AddPrefix("é"), b"x") == b"_latin1 X'E978'"
    wide = column(ValueKind.STRING, "varchar(5)", charset="ucs2")
    assert mapped(wide, AddSuffix("é"), b"\0x") == b"_ucs2 X'007800E9'"


@pytest.mark.parametrize(
    ("one", "mapping"),
    [
        (BIGINT, AddPrefix("x")),
        (LATIN, AddPrefix("中")),
        (column(ValueKind.DOUBLE, "double"), PartitionId(0, 44)),
        (column(ValueKind.STRING, "varchar(5)", charset="tis620"), AddSuffix("é")),
        (column(ValueKind.STRING, "varchar(5)", charset="of_tomorrow"), AddSuffix("x")),
        (column(ValueKind.STRING, "varchar(5)", charset="bad name"), None),
        (column(ValueKind.YEAR, "year(2)"), None),
    ],
)
def test_a_mapping_a_column_cannot_have_is_refused(one: Column, mapping: AddPrefix | PartitionId | None) -> None:
    with pytest.raises(ShardmergeError) as caught:
        RowWriter(plan_of(table(one), {"c": mapping} if mapping else None), "s1")
    assert caught.value.spec.name == "unsupported-column-type"


def as_utf8(one: Column, mapping: AddPrefix | AddSuffix | PartitionId | None = None) -> RowWriter:
    plan = plan_of(table(one), {"c": mapping} if mapping else None)
    return RowWriter(replace(plan, text_as_utf8=True), "s1")


def text_column(charset: str) -> Column:
    return column(ValueKind.STRING, "varchar(50)", charset=charset)


@pytest.mark.parametrize(
    ("charset", "value", "target", "source"),
    [
        ("latin1", b"plain", "'plain'", b"'plain'"),
        ("latin1", b"\xdf'\\\0", r"'ß\'\\\0'", b"_latin1 X'DF275C00'"),
        ("latin1", b"", "''", b"''"),
        ("swe7", b"[x]", "'ÄxÅ'", b"_swe7 X'5B785D'"),
        ("sjis", b"plain", "'plain'", b"_sjis X'706C61696E'"),
        ("sjis", b"\x83\x5c", "'ソ'", b"_sjis X'835C'"),
        ("utf16", b"\0a\xd8\x3d\xde\0", "'a😀'", b"_utf16 X'0061D83DDE00'"),
        ("ascii", b"it's", r"'it\'s'", rb"'it\'s'"),
        ("utf8mb4", "ß".encode(), "'ß'", "'ß'".encode()),
    ],
)
def test_text_as_utf8_is_for_the_target_alone(charset: str, value: bytes, target: str, source: bytes) -> None:
    writer = as_utf8(text_column(charset))
    assert writer.literals([value]) == (target.encode(),)
    assert writer.source_key([value]) == (source,)


def test_text_as_utf8_is_mapped_as_characters() -> None:
    assert as_utf8(LATIN, AddPrefix("中-")).literals([b"\xdf"]) == ("'中-ß'".encode(),)
    assert as_utf8(text_column("ucs2"), AddSuffix("'")).literals([b"\0x"]) == (rb"'x\''",)
    assert as_utf8(text_column("utf16"), PartitionId(1 << 50, 44)).literals([b"\x007"]) == (b"'%d'" % (1 << 50 | 7),)
    assert as_utf8(LATIN, PartitionId(1 << 50, 44)).literals([None]) == (b"NULL",)


@pytest.mark.parametrize(("charset", "code"), [("ascii", "80"), ("cp1250", "81"), ("ucs2", "D83D")])
def test_bytes_without_a_character_are_no_text_for_a_target_of_utf8(charset: str, code: str) -> None:
    writer = as_utf8(text_column(charset))
    value = b"\0a" + bytes.fromhex(code)
    with pytest.raises(ShardmergeError) as caught:
        writer.literals([value])
    assert caught.value.spec.name == "bytes-without-character"
    assert {"shop_01", "order_02", "c", charset, code, value.hex().upper()} <= set(caught.value.values.values())


def test_a_character_set_that_is_not_known_is_refused_for_a_target_of_utf8() -> None:
    with pytest.raises(ShardmergeError) as caught:
        as_utf8(text_column("of_tomorrow"))
    assert caught.value.spec.name == "unsupported-column-type"


def test_two_codes_of_a_character_are_two_keys_no_longer_and_one_is_refused() -> None:
    one = text_column("cp932")
    keyed = as_utf8(one)
    keyless = RowWriter(replace(plan_of(replace(table(one), key=())), key=(), text_as_utf8=True), "s1")
    for common, second in ((b"\x81\xbe", b"\x87\x9c"), (b"\x81\xca", b"\xee\xf9")):
        [literal_of_common] = keyed.literals([b"a" + common])
        assert keyless.literals([b"a" + second]) == (literal_of_common,)
        with pytest.raises(ShardmergeError) as caught:
            keyed.literals([b"a" + second])
        assert caught.value.spec.name == "key-with-second-code"
        values = {"c", "cp932", (b"a" + common).hex().upper(), (b"a" + second).hex().upper()}
        assert values <= set(caught.value.values.values())
