"""Binary JSON: its text is the server's; bytes that are no JSON are refused in linear time."""

from __future__ import annotations

import random
import struct
import time
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmerge.worker.binlog.json.binary import BadJson, json_text
from tests.support.binary_json import Json, Opaque, Unsigned, encode, text_of

# Texts as MySQL prints them; the bytes are in the row images of its binlog.
SCALARS: list[tuple[Json, str]] = [
    (None, "null"), (True, "true"), (False, "false"),
    (0, "0"), (-1, "-1"), (32767, "32767"), (-32768, "-32768"), (32768, "32768"), (-2147483648, "-2147483648"),
    (2147483648, "2147483648"), (-(1 << 63), "-9223372036854775808"), ((1 << 63) - 1, "9223372036854775807"),
    (Unsigned(65535), "65535"), (Unsigned(4294967295), "4294967295"), (Unsigned((1 << 64) - 1), "18446744073709551615"),
    (1.0, "1.0"), (-0.0, "-0.0"), (0.1, "0.1"), (1e14, "100000000000000.0"), (1e15, "1e15"), (-1e20, "-1e20"),
    (999999999999999.0, "999999999999999.0"), (1234567890123456.0, "1.234567890123456e15"),
    (1234567890123456.8, "1234567890123456.8"), (1e-4, "0.0001"), (1e-5, "0.00001"),
    (1e-15, "0.000000000000001"), (1e-16, "1e-16"), (1.5e-16, "1.5e-16"), (1.7976931348623157e308,
    "1.7976931348623157e308"), (5e-324, "5e-324"), (0.30000000000000004, "0.30000000000000004"),
    ("", '""'), ("a\"b\\c/\b\t\n\f\r\x01\x1f\x7fé😀", '"a\\"b\\\\c/\\b\\t\\n\\f\\r\\u0001\\u001f\x7fé😀"'),
    (Opaque(246, bytes([2, 1, 0x81, 5])), "1.5"),
    (Opaque(246, bytes([2, 1, 0x7E, 0xFA])), "-1.5"),
    (Opaque(246, bytes([1, 1, 0x85])), "0.5"),
    (Opaque(246, bytes([10, 2, 0x80, 0, 0, 0, 0])), "0.00"),
    (Opaque(246, bytes([3, 0, 0x80, 0x7B])), "123"),
    (Opaque(10, struct.pack("<q", (2024 * 13 + 2 << 5 | 29) << 41)), '"2024-02-29"'),
    (Opaque(10, bytes(8)), '"0000-00-00"'),
    (Opaque(12, struct.pack("<q", ((9999 * 13 + 12 << 5 | 31) << 17 | 23 << 12 | 59 << 6 | 59) << 24 | 999999)),
     '"9999-12-31 23:59:59.999999"'),
    (Opaque(7, struct.pack("<q", ((1970 * 13 + 1 << 5 | 1) << 17 | 1) << 24)), '"1970-01-01 00:00:01.000000"'),
    (Opaque(11, struct.pack("<q", -((838 << 12 | 59 << 6 | 59) << 24))), '"-838:59:59.000000"'),
    (Opaque(11, struct.pack("<q", (1 << 12 | 2 << 6 | 3) << 24 | 4)), '"01:02:03.000004"'),
    (Opaque(15, b"\xca\xfe"), '"base64:type15:yv4="'), (Opaque(252, b""), '"base64:type252:"'),
    (Opaque(16, b"\1"), '"base64:type16:AQ=="'),
    (Opaque(252, bytes(58)), '"base64:type252:' + "A" * 76 + '\\nAA=="'),
    (Opaque(252, bytes(57)), '"base64:type252:' + "A" * 76 + '"'),
    (Opaque(253, b'x"'), '"x\\""'),
]  # fmt: skip


def text(document: bytes) -> str:
    """Its text, read from the midst of other bytes."""
    return json_text(b"\xff" + document + b"\xff", 1, 1 + len(document)).decode()


@pytest.mark.parametrize(("value", "expected"), SCALARS)
@pytest.mark.parametrize("large", [False, True])
def test_scalars_alone_and_inside(value: Json, expected: str, large: bool) -> None:
    assert text(encode(value)) == expected
    assert text(encode([value, {"k": value}], large)) == f'[{expected}, {{"k": {expected}}}]'


def test_no_bytes_are_null() -> None:
    assert json_text(b"", 0, 0) == b"null"
    assert json_text(b"abc", 2, 2) == b"null"


def test_opaque_strings_of_old_servers() -> None:
    document = encode([Opaque(253, b"ab")])
    assert json_text(document, 0, len(document), True) == b'["base64:type253:YWI="]'


def test_empty_containers_and_the_order_of_keys() -> None:
    assert text(encode([])) == "[]"
    assert text(encode({})) == "{}"
    assert text(encode({"bb": 1, "a": 2, "": 3, "B": 4, "é": 5})) == '{"": 3, "B": 4, "a": 2, "bb": 1, "é": 5}'


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=12)
    | st.integers(0, (1 << 64) - 1).map(Unsigned)
    | st.binary(max_size=20).map(lambda raw: Opaque(15, raw, f'"base64:type15:{_base64(raw)}"')),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip


def _base64(raw: bytes) -> str:
    import base64

    return base64.b64encode(raw).decode()


@given(values, st.booleans())
def test_any_value(value: Json, large: bool) -> None:
    assert text(encode(value, large)) == text_of(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(9007199254740993.0)
def test_doubles_keep_their_value_and_their_form(value: float) -> None:
    printed = text(encode(value))
    assert struct.pack("<d", float(printed)) == struct.pack("<d", value)
    assert "." in printed or "e" in printed
    mantissa, _, exponent = printed.partition("e")
    digits = mantissa.lstrip("-").replace(".", "")
    assert len(digits.strip("0")) <= 17
    point = Decimal(repr(value)).adjusted() + 1
    if exponent:
        assert (point > 15 or point < -14) and str(int(exponent)) == exponent == str(point - 1)
        assert digits == digits.strip("0") and (len(digits) == 1 or mantissa.lstrip("-")[1] == ".")
    elif value:
        assert -14 <= point <= 15 or len(digits.strip("0")) > point


@given(values, st.booleans(), st.data())
def test_bytes_cut_off(value: Json, large: bool, data: st.DataObject) -> None:
    document = encode(value, large)
    stop = data.draw(st.integers(1, len(document)))
    cut = document[:stop]
    if stop == len(document):
        assert text(cut) == text_of(value)
    else:
        with pytest.raises(BadJson):
            json_text(cut, 0, stop)


@given(values, st.booleans(), st.data())
def test_any_damage_is_a_text_or_refused(value: Json, large: bool, data: st.DataObject) -> None:
    document = bytearray(encode(value, large))
    for _ in range(data.draw(st.integers(1, 4))):
        document[data.draw(st.integers(0, len(document) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = json_text(bytes(document), 0, len(document))
    except BadJson:
        return
    found.decode("utf-8")
    assert len(found) <= 40 * len(document)


def test_depth() -> None:
    value: Json = []
    for _ in range(99):
        value = [value]
    assert text(encode(value)) == "[" * 100 + "]" * 100
    with pytest.raises(BadJson, match="100 levels"):
        text(encode([value]))


BAD = [
    (b"\x0e\0", "unknown type 14"),
    (b"\4\3", "an unknown literal"),
    (b"\4", "an unknown literal"),
    (b"\x0b" + bytes(7), "a number is cut off"),
    (b"\x0b" + struct.pack("<d", float("inf")), "not finite"),
    (b"\x0b" + struct.pack("<d", float("nan")), "not finite"),
    (b"\x0c\x80\x80\x80\x80\x80\0", "length is cut off"),
    (b"\x0c\x80", "length is cut off"),
    (b"\x0c\3ab", "a string exceeds"),
    (b"\x0c\1\xff", "not UTF-8"),
    (b"\x0c\3\xed\xa0\x80", "not UTF-8"),
    (b"\x0f", "without a type"),
    (b"\x0f\xf6\3\x42\0\x80", "of 66 digits"),
    (b"\x0f\xf6\3\2\3\x80", "3 of them after"),
    (b"\x0f\xf6\2\1\0", "decimal number is cut off"),
    (b"\x0f\xf6\5\2\1\x81\5\0", "2 digits in 3 bytes"),
    (b"\x0f\xf6\4\2\1\x81\x0a", "exceed their group"),
    (b"\x0f\x0a\7" + bytes(7), "a temporal value of 7 bytes"),
    (b"\x0f\x0b\x08" + struct.pack("<q", 60 << 24), "time of day outside"),
    (b"\x0f\x0b\x08" + struct.pack("<q", 60 << 30), "time of day outside"),
    (b"\x0f\x0b\x08" + struct.pack("<q", 1_000_000), "time of day outside"),
    (b"\x0f\x0b\x08" + struct.pack("<q", 839 << 36), "outside its range"),
    (b"\x0f\x0c\x08" + struct.pack("<q", 24 << 36), "outside the calendar"),
    (b"\x0f\x0a\x08" + struct.pack("<q", 10000 * 13 << 46), "outside the calendar"),
    (b"\x0f\x0a\x08" + struct.pack("<q", -1 << 41), "outside the calendar"),
    (b"\2\0\0\4", "is cut off"),
    (b"\3" + struct.pack("<II", 0xFFFFFFFF, 8), "exceeds its bytes"),
    (b"\2" + struct.pack("<HH", 0, 5), "exceeds its bytes"),
    (b"\0" + struct.pack("<HHHH", 1, 11, 10, 1) + b"\4\0\0", "key lies outside"),
    (b"\0" + struct.pack("<HHHH", 1, 11, 11, 1) + b"\4\0\0", "key lies outside"),
    (b"\0" + struct.pack("<HHHHHH", 2, 20, 18, 1, 19, 1) + b"\4\0\0\4\0\0" + b"ba", "not in order"),
    (b"\0" + struct.pack("<HHHHHH", 2, 20, 18, 1, 19, 1) + b"\4\0\0\4\0\0" + b"aa", "not in order"),
    (b"\0" + struct.pack("<HHHHHH", 2, 21, 18, 2, 20, 1) + b"\4\0\0\4\0\0" + b"aab", "not in order"),
    (b"\2" + struct.pack("<HH", 1, 8) + b"\x0c\6\0" + b"\0", "value lies outside"),
    (b"\2" + struct.pack("<HH", 1, 7) + b"\x0c\x08\0" + b"\0", "value lies outside"),
    (b"\2" + struct.pack("<HH", 1, 7) + b"\2\0\0", "value lies outside"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "reason"), BAD)
def test_malformed(document: bytes, reason: str) -> None:
    with pytest.raises(BadJson, match=reason):
        json_text(document, 0, len(document))


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 3), (2, 1)])
def test_outside_the_bytes(start: int, stop: int) -> None:
    with pytest.raises(BadJson):
        json_text(b"\4\0", start, stop)


def sharing(levels: int, width: int) -> bytes:
    """Arrays of ``width`` elements, all referring to the one array after it: width ** levels values when followed."""
    body = struct.pack("<II", 0, 8)
    for _ in range(levels):
        head = 8 + 5 * width
        entry = b"\3" + struct.pack("<I", head)
        body = struct.pack("<II", width, head + len(body)) + entry * width + body
    return b"\3" + body


@pytest.mark.parametrize("document", [sharing(90, 10), sharing(1, 100_000), sharing(3, 1000)])
def test_values_that_share_bytes_are_refused_soon(document: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(BadJson, match="share bytes"):
        json_text(document, 0, len(document))
    assert time.process_time() - begun < 5


def test_strings_that_share_bytes_are_refused() -> None:
    long = b"\xff\xff\3" + b"a" * 65535
    head = 8 + 5 * 5000
    document = b"\3" + struct.pack("<II", 5000, head + len(long)) + (b"\x0c" + struct.pack("<I", head)) * 5000 + long
    with pytest.raises(BadJson, match="share bytes"):
        json_text(document, 0, len(document))


def test_gaps_between_values_are_ignored() -> None:
    """A server that changes a document in place leaves room after shorter values."""
    assert text(b"\2" + struct.pack("<HH", 1, 20) + b"\x0c\x0a\0" + b"\xee" * 3 + b"\2ab" + b"\xee" * 7) == '["ab"]'


def test_a_large_document() -> None:
    pick = random.Random(1)
    value: Json = {f"key{number}": [pick.randint(-(1 << 40), 1 << 40), "x" * 30] for number in range(20_000)}
    assert text(encode(value, True)) == text_of(value)
