"""Rows of a text-protocol answer are the same however the bytes arrive."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.rows.literal_text import literals_of
from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, AddSuffix, ColumnPlan, Mapping, PartitionId, TablePlan
from shardmerge.worker.snapshot.source.text_rows import END, FAILED, ROWS, RowJoiner, join_rows, split_rows
from tests.unit.worker.snapshot.shards import PLAN

_ROW = st.lists(st.one_of(st.none(), st.binary(max_size=300)), min_size=3, max_size=3)
_EOF = b"\x05\x00\x00\xff\xfe\x00\x00\x02\x00"
_ERR = b"\x09\x00\x00\x01\xff\x15\x04#28000"


def _length(count: int) -> bytes:
    if count < 251:
        return bytes([count])
    if count < 1 << 16:
        return b"\xfc" + count.to_bytes(2, "little")
    if count < 1 << 24:
        return b"\xfd" + count.to_bytes(3, "little")
    return b"\xfe" + count.to_bytes(8, "little")


def _packets(row: list[bytes | None]) -> bytes:
    payload = b"".join(b"\xfb" if value is None else _length(len(value)) + value for value in row)
    sent = b""
    while len(payload) >= 0xFFFFFF:
        sent += b"\xff\xff\xff\x00" + payload[:0xFFFFFF]
        payload = payload[0xFFFFFF:]
    return sent + len(payload).to_bytes(3, "little") + b"\x00" + payload


@given(st.lists(_ROW, max_size=20), st.integers(1, 400))
def test_rows_arrive_whole_in_pieces_of_any_size(sent: list[list[bytes | None]], piece: int) -> None:
    answer = b"".join(map(_packets, sent)) + _EOF
    got: list[list[bytes | None]] = []
    pending = b""
    state = ROWS
    for start in range(0, len(answer), piece):
        assert state == ROWS
        pending += answer[start : start + piece]
        state, used = split_rows(pending, 3, got)
        pending = pending[used:]
    assert (state, pending, got) == (END, b"", sent)


@pytest.mark.parametrize("size", [250, 251, 65535, 65536, 0xFFFFFF - 5, 0xFFFFFF - 4, 0xFFFFFF, 40_000_000])
def test_values_of_any_length(size: int) -> None:
    row: list[bytes | None] = [b"x" * size, None]
    got: list[list[bytes | None]] = []
    answer = _packets(row) + _EOF
    assert split_rows(answer[: size // 2], 2, got) == (ROWS, 0)
    assert split_rows(answer, 2, got) == (END, len(answer))
    assert got == [row]


def test_an_error_in_the_middle_is_left_to_the_caller() -> None:
    got: list[list[bytes | None]] = []
    row = _packets([b"1"])
    assert split_rows(row + _ERR, 1, got) == (FAILED, len(row))
    assert got == [[b"1"]]


@pytest.mark.parametrize(
    "payload", [b"", b"\x01a", b"\x05ab", b"\x01a\x01b\x01c", b"\x01a\xfc\x01", b"\x01a\xfd\x00\x00"]
)
def test_bytes_that_are_no_row_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"row|column"):
        split_rows(len(payload).to_bytes(3, "little") + b"\x00" + payload, 2, [])


def _column(kind: ValueKind, type_text: str, charset: str = "", labels: tuple[str, ...] = ()) -> Column:
    return Column("c", kind, type_text, True, charset=charset, labels=labels, length=4 if type_text == "inet4" else 0)


_COLUMNS: list[tuple[Column, Mapping | None]] = [
    (_column(ValueKind.INTEGER, "bigint"), None),
    (_column(ValueKind.INTEGER, "bigint"), PartitionId(5 << 44, 44)),
    (_column(ValueKind.INTEGER, "bigint"), PartitionId(1 << 63, 63)),
    (_column(ValueKind.DECIMAL, "decimal(60,30)"), None),
    (_column(ValueKind.DOUBLE, "double"), None),
    (_column(ValueKind.BIT, "bit(64)"), None),
    (_column(ValueKind.YEAR, "year"), None),
    (_column(ValueKind.DATE, "date"), None),
    (_column(ValueKind.TIME, "time(6)"), None),
    (_column(ValueKind.DATETIME, "datetime(6)"), None),
    (_column(ValueKind.TIMESTAMP, "timestamp"), None),
    *((_column(ValueKind.STRING, "text", charset), None) for charset in ("utf8mb4", "latin1", "gbk", "utf16", "ascii")),
    (_column(ValueKind.STRING, "varchar(9)", "utf8mb4"), AddPrefix("é-")),
    (_column(ValueKind.STRING, "varchar(9)", "latin1"), AddSuffix("-x")),
    (_column(ValueKind.STRING, "varchar(9)", "utf8mb4"), PartitionId(5 << 44, 44)),
    (_column(ValueKind.BINARY, "blob"), None),
    (_column(ValueKind.BINARY, "inet4"), None),
    (_column(ValueKind.ENUM, "enum", labels=("a", "it's")), None),
    (_column(ValueKind.SET, "set", labels=("a", "b")), None),
    (_column(ValueKind.JSON, "json"), None),
    (_column(ValueKind.GEOMETRY, "point"), None),
]
_NUMBERS = st.from_regex(rb"-?[0-9]{0,25}(\.[0-9]{0,9})?", fullmatch=True)
_MOMENTS = st.from_regex(rb"-?[0-9]{2,4}[-:][0-9]{2}[-:][0-9]{2}( [0-9]{2}:[0-9]{2})?(\.[0-9]{1,6})?", fullmatch=True)
_JSONS = st.sampled_from([b'{"a": 12.50, "b": "x, \'y\'/*"}', b"[1, 2]", b'"a,b"'])
_VALUES = st.one_of(
    st.none(), _NUMBERS, _MOMENTS, _JSONS, st.binary(max_size=40), st.text("a',\\\0é%/*", max_size=400).map(str.encode)
)


def _plan(columns: list[tuple[Column, Mapping | None]]) -> TablePlan:
    written = tuple(ColumnPlan(at, column, column.name, mapping) for at, (column, mapping) in enumerate(columns))
    table = replace(PLAN.table, columns=tuple(column for column, _ in columns))
    return replace(PLAN, table=table, columns=written, key=(0,))


_CELLS = st.lists(st.tuples(st.sampled_from(_COLUMNS), _VALUES), min_size=1, max_size=6)


@given(_CELLS)
@example([(_COLUMNS[-2], b'{"a": 12.50, "b": "x, \'y\'/*"}'), (_COLUMNS[0], b"3")])
def test_a_joined_row_is_what_its_literals_are(cells: list[tuple[tuple[Column, Mapping | None], bytes | None]]) -> None:
    """The same bytes, or the same error, as value by value."""
    writer = RowWriter(_plan([column for column, _ in cells]), "s1")
    values = [value for _, value in cells]
    packets = _packets(values) * 2 + _EOF
    got: list[bytes] = []
    try:
        literals = writer.literals(values)
    except ShardmergeError as expected:
        with pytest.raises(ShardmergeError) as found:
            join_rows(packets, RowJoiner(writer.codecs), len(values), got)
        assert str(found.value) == str(expected)
        return
    assert join_rows(packets, RowJoiner(writer.codecs), len(values), got) == (END, len(packets))
    assert got == [b",".join(literals)] * 2
    assert literals_of(got[0]) == literals


@pytest.mark.parametrize("size", [250, 65536, 0xFFFFFF, 20_000_000])
@pytest.mark.parametrize("written", ["in place", "by value"])
def test_joined_values_of_any_length(size: int, written: str) -> None:
    """The bytes before a value that the buffer has no room for are kept, however the value is written."""
    text, long = _COLUMNS[11], _COLUMNS[11] if written == "in place" else _COLUMNS[16]
    assert text[0].charset == "utf8mb4"
    prefix = b"" if written == "in place" else "é-".encode()
    writer = RowWriter(_plan([text, long, text, _COLUMNS[0]]), "s1")
    for first, second in ((b"before", b"x" * size), (b"x" * size, b"behind")):
        got: list[bytes] = []
        answer = _packets([first, second, b"'" * 9, b"7"]) + _packets([None, b"", None, b"-1"]) + _EOF
        assert join_rows(answer, RowJoiner(writer.codecs), 4, got) == (END, len(answer))
        assert got == [
            b"'" + first + b"','" + prefix + second + b"','" + b"\\'" * 9 + b"',7",
            b"NULL,'" + prefix + b"',NULL,-1",
        ]
        assert got[0] == b",".join(writer.literals([first, second, b"'" * 9, b"7"]))
        assert literals_of(got[1])[0::2] == (b"NULL", b"NULL")


@pytest.mark.parametrize(
    "payload", [b"", b"\x011", b"\x05ab", b"\x011\x011\x011", b"\x011\xfc\x01", b"\x011\xfd\x00\x00"]
)
def test_bytes_that_are_no_row_are_not_joined(payload: bytes) -> None:
    writer = RowWriter(_plan(_COLUMNS[:1] * 2), "s1")
    with pytest.raises(ValueError, match=r"row|column"):
        join_rows(len(payload).to_bytes(3, "little") + b"\x00" + payload, RowJoiner(writer.codecs), 2, [])
