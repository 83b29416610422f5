"""Names of files in a bundle stay within its folder, whatever the master answers."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.ctl.bundle.contents import json_file, safe_name


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("mysql-01", "mysql-01"),
        ("a/b", "a%2Fb"),
        ("..", "%2E."),
        ("", "%"),
        ("sträße 1", "str%C3%A4%C3%9Fe 1"),
    ],
)
def test_a_safe_name(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@given(st.text(max_size=400), st.text(max_size=400))
def test_names_are_short_plain_and_different(one: str, other: str) -> None:
    name = safe_name(one)
    assert len(name) <= 150 and name.isascii() and name.isprintable()
    assert PurePosixPath(name).parts == (name,) and not name.startswith(".")
    assert one == other or name != safe_name(other)


def test_json_has_no_encrypted_secret() -> None:
    assert json_file("a.json", {"a": "enc:v1:abc="}, "").text == '{\n  "a": "******"\n}\n'
