"""Regular expressions of users: RE2's syntax, linear in time."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

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
        ("[^a]{1000}" * 100, "too large"),
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


def _limited(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


TOO_COMPLEX = {
    "nested": "(" * 5000 + ".*" + ")" * 5000,
    "nested, without groups": "(?:" * 900 + "a" + ")*" * 900,
    "nested, with classes and escapes": r"[)](\)" * 200 + "a" + ")" * 200,
    "long": "a|" * 40_000 + "b",
    "many classes of Unicode": r"\pL" * 300_000,
    "some classes of Unicode": r"\pL|\PN|" * 20,
}


@pytest.mark.parametrize("text", TOO_COMPLEX.values(), ids=TOO_COMPLEX)
def test_what_is_too_complex_is_refused_before_it_is_compiled(text: str) -> None:
    def refuse() -> None:
        with pytest.raises(RegexError, match=r"more than|longer than"):
            compile_regex(text)

    assert _limited(refuse) < 0.5


@pytest.mark.parametrize("text", ["(a?)" * 101, "(a*)*" * 2000])
def test_groups_that_are_extracted_are_few(text: str) -> None:
    """Each costs time with each character of a name."""

    def refuse() -> None:
        with pytest.raises(RegexError, match="more than 100 groups"):
            compile_regex(text, needs_groups=True)

    assert _limited(refuse) < 0.5


def test_groups_cost_nothing_where_they_are_not_extracted() -> None:
    """It took seconds for one name."""
    found = compile_regex("(a?)" * 3000)
    assert _limited(lambda: [found.matches("a" * 64 + str(number)) for number in range(20)]) < 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("^(" + "|".join(f"orders_{number:04d}" for number in range(3000)) + ")$", "orders_2999"),
        (r"^\pL+_([(]|\(|\d)$", "é_("),
        ("(" * 50 + "a" + ")" * 50, "a"),
        (r"^a\Q(((\E$", "a((("),
    ],
)
def test_what_operators_write_is_taken(text: str, name: str) -> None:
    assert compile_regex(text).matches(name)
    assert not compile_regex(text).matches("x")
