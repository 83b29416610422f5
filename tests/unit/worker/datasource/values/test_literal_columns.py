"""Literals of a column as Arrow's buffers: the same texts as of each literal alone."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.binlog.rows.row_literals import quote_text
from shardmerge.worker.datasource.values.literal_columns import column_texts

_LITERALS = st.one_of(
    st.just(b"NULL"),
    st.integers().map(lambda number: b"%d" % number),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: repr(number).encode()),
    st.text().map(lambda text: quote_text(text.encode("utf-8", "replace"))),
    st.binary().map(lambda data: b"X'%s'" % data.hex().upper().encode()),
    st.binary().map(lambda data: b"_latin1 X'%s'" % data.hex().encode()),
)


def _texts(images: list[tuple[bytes, ...]], slot: int) -> list[bytes | None]:
    offsets, values, marks, nulls = column_texts(images, slot)
    places = struct.unpack(f"<{len(images) + 1}i", offsets)
    found = [bytes(values[places[at] : places[at + 1]]) if marks[at] else None for at in range(len(images))]
    assert nulls == found.count(None)
    assert all(places[at] == places[at + 1] for at in range(len(images)) if not marks[at])
    return found


@given(st.lists(st.one_of(st.just(()), st.tuples(st.just(b"'other'"), _LITERALS))))
def test_the_texts_are_those_of_each_literal(images: list[tuple[bytes, ...]]) -> None:
    assert _texts(images, 1) == [text_of_literal(image[1]) if image else None for image in images]


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (b"NULL", None),
        (b"'NULL'", b"NULL"),
        (b"''", b""),
        (b"X''", b""),
        (b"'it\\'s \\\\ \\0'", b"it's \\ \0"),
        (b"X'00fF'", b"\x00\xff"),
        (b"_gbk X'C4E3'", b"\xc4\xe3"),
        (b"-1.5e-7", b"-1.5e-7"),
    ],
)
def test_kinds_of_literals(literal: bytes, text: bytes | None) -> None:
    assert _texts([(literal,)], 0) == [text]
