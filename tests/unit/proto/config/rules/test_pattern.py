"""Wildcards and regular expressions of schema and table names."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.config.rules.pattern import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("t", "t", "t1"),
        ("t_*", "t_ t_1 t_a_b", "t xt_1"),
        ("*", "t x", ""),
        ("t_?", "t_1 t_?", "t_ t_12"),
        ("t_[0-3x]", "t_0 t_3 t_x", "t_4 t_ t_-"),
        ("t_[!0-3]", "t_4 t_x", "t_0"),
        ("t_[!]", "t_!", "t_x"),
        ("t_[a-]", "t_a t_-", "t_b"),
        ("t[", "t[", "t"),
        ("t.1", "t.1", "tx1"),
        ("t_[^a]", "t_^ t_a", "t_b"),
        (r"~^t_\d+$", "t_1 t_22", "t_ xt_1"),
        ("~t_", "xt_1", "t"),
    ],
)
def test_matching(pattern: str, yes: str, no: str) -> None:
    compiled = compile_pattern(pattern, case_sensitive=True)
    assert [name for name in yes.split() if not compiled.matches(name)] == []
    assert [name for name in no.split() if compiled.matches(name)] == []


@pytest.mark.parametrize("pattern", ["", "t*x", "**", "t[]", "t[z-a]", "~(", "~*", "~(?P<a"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern, case_sensitive=True)


def test_case() -> None:
    for pattern in ("User_*", "~^User_", "[U]ser_1"):
        assert compile_pattern(pattern, case_sensitive=False).matches("uSER_1")
        assert not compile_pattern(pattern, case_sensitive=True).matches("uSER_1")


SAFE = st.text(alphabet="ab_?", max_size=6)


@given(SAFE, st.booleans(), st.text(alphabet="ab_", max_size=6))
def test_wildcards_agree_with_fnmatch(start: str, star: bool, name: str) -> None:
    pattern = start + ("*" if star or not start else "")
    assert compile_pattern(pattern, True).matches(name) == fnmatch.fnmatchcase(name, pattern)


ANY_PATTERN = st.one_of(
    st.tuples(st.text(alphabet="ab_?", min_size=1, max_size=5), st.sampled_from(["", "*", "[ab]", "[!a]*"])).map(
        "".join
    ),
    st.sampled_from(["*", "~a", "~^b", "[a-c]", "?*"]),
)


@given(ANY_PATTERN, ANY_PATTERN, ANY_PATTERN)
def test_more_specific_is_a_strict_order(one: str, two: str, three: str) -> None:
    a, b, c = (compile_pattern(text, True) for text in (one, two, three))
    assert not a.more_specific_than(a)
    assert not (a.more_specific_than(b) and b.more_specific_than(a))
    if a.more_specific_than(b) and b.more_specific_than(c):
        assert a.more_specific_than(c)
