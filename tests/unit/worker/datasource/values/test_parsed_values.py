"""Texts of integers, dates and times as Arrow's elements."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.datasource.arrow_library import pa
from shardmerge.worker.datasource.values.parsed_values import DATE, DATETIME, TIME, parse_integers, parse_temporal


def buffers(texts: list[bytes]) -> tuple[bytes, bytes, int]:
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    return b"".join(end.to_bytes(4, "little") for end in ends), b"".join(texts), len(texts)


def elements(data: bytearray, count: int, made: object) -> list[object]:
    return pa.Array.from_buffers(made, count, [None, pa.py_buffer(data)]).to_pylist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers(numbers: list[int]) -> None:
    data, bad = parse_integers(*buffers([str(number).encode() for number in numbers]))
    assert bad == -1
    assert elements(data, len(numbers), pa.int64()) == numbers


@pytest.mark.parametrize("text", [b"-", b"1.0", b"9223372036854775808", b"-9223372036854775809", b"9" * 30, b" 1"])
def test_what_is_no_integer_of_64_bits(text: bytes) -> None:
    assert parse_integers(*buffers([b"1", b"", text]))[1] == 2


@given(st.lists(st.dates()), st.lists(st.datetimes()))
def test_dates_and_times_that_exist(days: list[datetime.date], moments: list[datetime.datetime]) -> None:
    data, _, missing, bad = parse_temporal(*buffers([day.isoformat().encode() for day in days]), DATE)
    assert (missing, bad) == (-1, -1)
    assert elements(data, len(days), pa.date32()) == days
    data, _, missing, bad = parse_temporal(*buffers([str(moment).encode() for moment in moments]), DATETIME)
    assert (missing, bad) == (-1, -1)
    assert elements(data, len(moments), pa.timestamp("us")) == moments


def test_dates_that_do_not_exist_are_marked() -> None:
    texts = [b"2024-02-29", b"0000-00-00", b"2023-02-29", b"2024-13-01", b"", b"0000-01-01", b"2024-04-31"]
    _, marks, missing, bad = parse_temporal(*buffers(texts), DATE)
    assert (bytes(marks), missing, bad) == (bytes([0, 1, 1, 1, 0, 1, 1]), 1, -1)


@given(st.lists(st.timedeltas(datetime.timedelta(hours=-838), datetime.timedelta(hours=838))))
def test_times_have_a_sign_and_more_than_a_day(times: list[datetime.timedelta]) -> None:
    texts: list[bytes] = []
    for time in times:
        seconds, fraction = divmod(abs(time) // datetime.timedelta(microseconds=1), 10**6)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
        texts.append(("-" * (time < datetime.timedelta()) + clock).encode())
    data, _, _, bad = parse_temporal(*buffers(texts), TIME)
    assert bad == -1
    assert elements(data, len(times), pa.duration("us")) == times


@pytest.mark.parametrize("kind", [DATE, DATETIME, TIME])
@pytest.mark.parametrize("text", [b"x", b"2024-1-01", b"2024-01-01T00:00:00", b"00:60:00", b"1:2:3", b"00:00:00."])
def test_what_cannot_be_read_is_reported(kind: int, text: bytes) -> None:
    assert parse_temporal(*buffers([text]), kind)[3] == 0
