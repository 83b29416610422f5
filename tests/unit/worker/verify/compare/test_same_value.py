"""Tests which texts of a row are the same value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.verify.compare.canonical_values import ComparedColumn, same_value

EXACT = ComparedColumn("c", ValueKind.JSON, "c", "c", is_long=True, is_binary=False)
BY_MEANING = replace(EXACT, by_meaning=True)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'{"b": 1, "aa": [1.5, null]}', b'{"aa":[1.50,null],"b":1.0}', True),
        (b"[1, 2]", b"[2, 1]", False),
        (b"[true]", b"[1]", False),
        (b'{"a": 1}', b'{"a": 1, "b": null}', False),
        (b"1.000000000000000000001", b"1", False),
        (b"not JSON", b"1", False),
    ],
)
def test_json_of_a_target_that_orders_members(one: bytes, other: bytes, same: bool) -> None:
    assert same_value(BY_MEANING, one, other) is same
    assert not same_value(EXACT, one, other)


def test_negative_zero() -> None:
    real = replace(EXACT, kind=ValueKind.DOUBLE)
    assert not same_value(real, b"-0", b"0")
    assert same_value(real, b"1e1", b"10")
    assert not same_value(real, b"0", None)


def test_null_is_not_an_empty_text() -> None:
    text = replace(EXACT, kind=ValueKind.STRING)
    assert same_value(text, None, None)
    assert not same_value(text, None, b"")
    assert not same_value(text, b"", None)
