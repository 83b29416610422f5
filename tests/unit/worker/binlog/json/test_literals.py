"""Literals of JSON values: numbers that a server would print otherwise after reading them are put in by their path."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.json.binary import BadJson, json_text
from shardmerge.worker.binlog.json.literals import literal_of_text, literal_of_value
from tests.support.binary_json import Json, Opaque, encode

_REPLACED = re.compile(rb",_utf8mb4 X'([0-9a-f]*)',(-?[0-9.]+)")


def parts(literal: bytes) -> tuple[str, list[tuple[str, str]]]:
    """The JSON text of a literal, and what is replaced in it: (path, number)."""
    head, tail = b"/*!50700 JSON_REPLACE(*/", b")*/"
    replaced: list[tuple[str, str]] = []
    if literal.startswith(head):
        literal, _, rest = literal.removeprefix(head).removesuffix(tail).rpartition(b"/*!50700 ")
        found = list(_REPLACED.finditer(rest))
        assert b"".join(match.group() for match in found) == rest
        replaced = [(bytes.fromhex(path.decode()).decode(), number.decode()) for path, number in map(_groups, found)]
    assert literal[:1] == literal[-1:] == b"'"
    assert not re.search(rb"(?<!\\)(\\\\)*'", literal[1:-1])
    return re.sub(rb"\\(.)", rb"\1", literal[1:-1], flags=re.DOTALL).decode(), replaced


def _groups(match: re.Match[bytes]) -> tuple[bytes, bytes]:
    return match.group(1), match.group(2)


KEPT = ["0", "-1", "18446744073709551615", "-9223372036854775808", "1.0", "-0.0", "0.5", "1e20", "-1.5e-16", "12.25",
        "999999999999999.0", "0.00000000000001", "1.2345678901234568e29", "0.1234567890123456", "100000000000000000",
        "1234567890123456.8", "null", '"12.50"', '{"1.50": "\\"2.50", "a\\\\": [1.5, true, null]}', "[]"]  # fmt: skip

REPLACED: list[tuple[str, list[tuple[str, str]]]] = [
    ("12.50", [("$", "12.50")]),
    ("18446744073709551616", [("$", "18446744073709551616")]),
    ("-9223372036854775809", [("$", "-9223372036854775809")]),
    ("0.00", [("$", "0.00")]),
    ("1000000000000000.0", [("$", "1000000000000000.0")]),
    ("0.000000000000001", []),
    ("0.0000000000000001", [("$", "0.0000000000000001")]),
    ("0.12345678901234567890", [("$", "0.12345678901234567890")]),
    ('[1.50, 1.5, [], [{}, 2.50], {"a": 3.50}]', [("$[0]", "1.50"), ("$[3][1]", "2.50"), ('$[4]."a"', "3.50")]),
    ('{"a": 1, "b\\"*/\'": {"": -0.10}, "c": [[1.10, "x"], 1.20]}',
     [('$."b\\"*/\'".""', "-0.10"), ('$."c"[0][0]', "1.10"), ('$."c"[1]', "1.20")]),
]  # fmt: skip


@pytest.mark.parametrize("text", KEPT)
def test_texts_that_are_read_back_alike(text: str) -> None:
    assert parts(literal_of_text(text.encode())) == (text, [])


@pytest.mark.parametrize(("text", "expected"), REPLACED)
def test_numbers_that_would_change(text: str, expected: list[tuple[str, str]]) -> None:
    assert parts(literal_of_text(text.encode())) == (text, expected)


NUMBER = Opaque(246, bytes([3, 2, 0x81, 50]))


@pytest.mark.parametrize(
    "value", [[NUMBER, "x'\\"], {"a": NUMBER}, NUMBER, [1.5, 2], Opaque(246, bytes([2, 1, 0x81, 5])), None]
)
def test_binary_values_and_their_text_make_the_same_literal(value: Json) -> None:
    document = encode(value)
    assert literal_of_value(document, 0, len(document)) == literal_of_text(json_text(document, 0, len(document)))


def test_binary_values() -> None:
    document = b"\xff" + encode({"a": NUMBER}) + b"\xff"
    assert parts(literal_of_value(document, 1, len(document) - 1)) == ('{"a": 1.50}', [('$."a"', "1.50")])
    assert literal_of_value(b"", 0, 0) == b"'null'"


# Numbers of at most 15 digits are printed without the zeros at their end.
numbers = st.decimals(-(10**9), 10**9, places=3).map(lambda number: f"{number:f}")
texts = st.recursive(
    st.integers(-99, 99).map(str)
    | numbers
    | st.text(max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False)),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda parts: "[" + ", ".join(parts) + "]")
        | st.dictionaries(st.text(max_size=3), inner, max_size=4).map(
            lambda parts: "{" + ", ".join(f"{json.dumps(key)}: {part}" for key, part in parts.items()) + "}"
        )
    ),
    max_leaves=20,
)


@given(texts)
def test_each_path_leads_to_its_number(text: str) -> None:
    kept, replaced = parts(literal_of_text(text.encode()))
    assert kept == text
    for path, number in replaced:
        document = json.loads(text, parse_float=str)
        for key, index in re.findall(r'\.("(?:[^"\\]|\\.)*")|\[(\d+)\]', path[1:]):
            document = document[json.loads(key) if key else int(index)]
        assert document == number
    plain = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    lossy = [number for number in re.findall(r"-?\d+\.\d+", plain) if number.endswith("0") and number[-2:] != ".0"]
    assert [number for _, number in replaced] == lossy


@pytest.mark.parametrize("text", ["[12.50", '{"a": 12.50', "12.50]", "1.2.3.40", "--1.50", "1e+e50", "1.50e2"])
def test_malformed_texts(text: str) -> None:
    with pytest.raises(BadJson):
        literal_of_text(text.encode())


def test_paths_that_dwarf_the_text() -> None:
    key = "k" * 60_000
    document = encode({key: [NUMBER for _ in range(5000)]}, True)
    with pytest.raises(BadJson, match="too long paths"):
        literal_of_value(document, 0, len(document))
