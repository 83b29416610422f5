"""Texts and binary values: quoted, escaped, or in hexadecimal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.rows.row_literals import literal, quote_text
from shardmerge.worker.core.table import Column, ValueKind

TEXT = Column("c", ValueKind.STRING, "varchar(50)", True, charset="utf8mb4")
WIDE = Column("c", ValueKind.STRING, "varchar(50)", True, charset="ucs2")
LATIN = Column("c", ValueKind.STRING, "varchar(50)", True, charset="latin1")
BLOB = Column("c", ValueKind.BINARY, "blob", True)


def unescape(quoted: bytes) -> bytes:
    """The server's reading of a quoted literal, written on its own."""
    assert quoted[:1] == quoted[-1:] == b"'"
    out, rest = bytearray(), quoted[1:-1]
    at = 0
    while at < len(rest):
        byte = rest[at]
        assert byte != 39, "a quote that ends the literal"
        if byte == 92:
            at += 1
            byte = {48: 0}.get(rest[at], rest[at])
        out.append(byte)
        at += 1
    return bytes(out)


@given(st.binary(max_size=300))
def test_a_quoted_text_reads_back_as_itself(raw: bytes) -> None:
    assert unescape(literal(TEXT, raw)) == raw
    assert quote_text(raw) == literal(TEXT, raw)


@given(st.binary(max_size=300))
def test_other_character_sets_and_binary_are_hexadecimal(raw: bytes) -> None:
    seven_bits = quote_text(raw)
    assert literal(LATIN, raw) == (seven_bits if raw.isascii() else b"_latin1 X'" + raw.hex().upper().encode() + b"'")
    assert literal(WIDE, raw) == b"_ucs2 X'" + raw.hex().upper().encode() + b"'"
    assert literal(BLOB, raw) == b"X'" + raw.hex().upper().encode() + b"'"
