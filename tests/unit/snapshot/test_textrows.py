"""Rows out of a text-protocol answer, however the bytes arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.snapshot.textrows import END, FAILED, ROWS, split_rows

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
