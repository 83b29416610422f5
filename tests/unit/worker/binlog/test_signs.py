"""The signs of numbers in a table map, which some servers write for YEAR columns too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.table import Column, Table, ValueKind
from tests.support.binlog import forge, plan_of, read_binlog

FORMAT = read_binlog(Path(__file__).parent / "data" / "mariadb-10.11.binlog").format_description
_MYSQL_FORMAT = read_binlog(Path(__file__).parent / "data" / "mysql-9.7-random.binlog").format_description

# Of MySQL 9.7.4: CREATE TABLE d.t (y year, a int, b int unsigned, c int, d int unsigned, e bit(3), f double)
_HEAD = bytes.fromhex("6a00000000000100016400017400070d030303031005030300087f")
_SIGNS = bytes.fromhex("0101a8")
TABLE = Table(
    "d",
    "t",
    (
        Column("y", ValueKind.YEAR, "year", True),
        Column("a", ValueKind.INTEGER, "int", True),
        Column("b", ValueKind.INTEGER, "int unsigned", True, unsigned=True),
        Column("c", ValueKind.INTEGER, "int", True),
        Column("d", ValueKind.INTEGER, "int unsigned", True, unsigned=True),
        Column("e", ValueKind.BIT, "bit(3)", True),
        Column("f", ValueKind.DOUBLE, "double", True),
    ),
    (),
    "",
    (),
    False,
    "InnoDB",
)


def _decode(signs: bytes, table: Table = TABLE) -> None:
    plan = plan_of(table)
    decoder = BlockDecoder(lambda schema, name: plan, source="s1")
    decoder.open(FORMAT)
    decoder.decode(forge(EventType.TABLE_MAP, _HEAD + signs))


@pytest.mark.parametrize("signs", [_SIGNS, bytes.fromhex("010150"), b""], ids=["with YEAR", "without", "untold"])
def test_either_way_to_count_is_understood(signs: bytes) -> None:
    _decode(signs)


@pytest.mark.parametrize("place", [1, 2, 3, 4, 6])
def test_a_number_of_another_sign_is_another_table(place: int) -> None:
    column = TABLE.columns[place]
    changed = replace(column, unsigned=not column.unsigned)
    table = replace(TABLE, columns=(*TABLE.columns[:place], changed, *TABLE.columns[place + 1 :]))
    with pytest.raises(ShardmergeError) as caught:
        _decode(_SIGNS, table)
    assert caught.value.spec is errors.decode.STRUCTURE_MISMATCH
    assert f"column {column.name} is" in caught.value.message


def test_signs_of_another_number_of_columns_are_malformed() -> None:
    with pytest.raises(ShardmergeError) as caught:
        _decode(bytes.fromhex("0102a800"))
    assert caught.value.spec is errors.decode.MALFORMED_EVENT


# Of MySQL 9.7.4: CREATE TABLE d.t (id INT PRIMARY KEY, v VECTOR(3), c VARCHAR(3), j JSON, g POINT, d TEXT CHARACTER SET
# latin1, e CHAR(3) CHARACTER SET gbk): its text columns, with the vector before them.
_TEXT_HEAD = bytes.fromhex("6a000000000001000164000174000703f20ff5fffcfe08040c00040402fe067e")
_CHARSETS = bytes.fromhex("03063ffcff00081c")
_TEXTS = replace(
    TABLE,
    columns=(
        Column("id", ValueKind.INTEGER, "int", False),
        Column("v", ValueKind.VECTOR, "vector(3)", True),
        Column("c", ValueKind.STRING, "varchar(3)", True, charset="utf8mb4"),
        Column("j", ValueKind.JSON, "json", True),
        Column("g", ValueKind.GEOMETRY, "point", True),
        Column("d", ValueKind.STRING, "text", True, charset="latin1"),
        Column("e", ValueKind.STRING, "char(3)", True, charset="gbk"),
    ),
)


@pytest.mark.parametrize(
    ("place", "charset", "reason"),
    [(2, "latin1", "c has character set utf8mb4"), (5, "utf8", "d has character set latin1"), (6, "gbk", "")],
)
def test_a_text_of_another_character_set_is_another_table(place: int, charset: str, reason: str) -> None:
    columns = list(_TEXTS.columns)
    columns[place] = replace(columns[place], charset=charset)
    table = replace(_TEXTS, columns=tuple(columns))
    if not reason:
        _decode_texts(table)
        return
    with pytest.raises(ShardmergeError, match=f"column {reason} there") as caught:
        _decode_texts(table)
    assert caught.value.spec is errors.decode.STRUCTURE_MISMATCH


def _decode_texts(table: Table) -> None:
    plan = plan_of(table)
    decoder = BlockDecoder(lambda schema, name: plan, source="s1")
    decoder.open(_MYSQL_FORMAT)
    decoder.decode(forge(EventType.TABLE_MAP, _TEXT_HEAD + _CHARSETS))
