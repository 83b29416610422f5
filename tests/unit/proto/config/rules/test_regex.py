"""Regular expressions of users: RE2's syntax, linear in time."""

from __future__ import annotations

import pickle
import time

import pytest

from shardmerge.proto.config.rules.pattern import compile_pattern
from shardmerge.proto.config.rules.regex import RegexError, compile_regex


@pytest.mark.parametrize("text", [r"(a+)+$", r"(a|a)*$", r"(.*)*x", r"(a?){30}a{30}$", r"(.*a){12}$"])
def test_no_expression_takes_more_than_linear_time(text: str) -> None:
    name = "a" * 40_000 + "!"
    begun = time.monotonic()
    compile_regex(text).matches(name)
    compile_pattern("~" + text, case_sensitive=False).matches(name)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(", "missing )"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("(a{1000}){1000}", "invalid repetition size"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        (r"\pN{5}" * 40_000, "too large"),
        ("\ud800", "surrogate"),
    ],
)
def test_what_is_refused_is_not_quoted(text: str, says: str) -> None:
    with pytest.raises(RegexError) as caught:
        compile_regex(text)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 120


def test_groups_case_and_pickling() -> None:
    found = pickle.loads(pickle.dumps(compile_regex(r"^_(.+)_(?:new|(gho))$", ignore_case=True)))
    assert found.groups("_Käse_NEW") == ("Käse", "")
    assert found.groups("_Käse_GHO") == ("Käse", "GHO")
    assert found.groups("käse") is None
    assert found.group_count == 2
    assert not compile_regex("A").matches("a")
