"""Finds routes that send one table to two targets, as far as the patterns prove it with a table that both match.

A finding is certain for its example. Without a finding an existing table may still have two targets: the pre-check
tests each one. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shardmerge.proto.config.rules.block_allow import BlockAllowRules
from shardmerge.proto.config.rules.pattern import compile_pattern
from shardmerge.proto.config.rules.reserved_names import SYSTEM_SCHEMAS
from shardmerge.proto.config.rules.rule_model import Route
from shardmerge.proto.config.rules.selector import Selector, ranked

_FILLERS = ("", "1", "01", "a", "_1", "_a")
_CHARACTERS = "a1_0b2zA9-$"
_MAX_RULES = 100
_MAX_WORK = 1_000_000
"""The most rules and patterns compared for one source; the rest is left to the pre-check, which tests real tables."""
_TOKEN = re.compile(r"\[[^\]]+\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two routes of equal rank, and a table that they send to different targets."""

    first: str
    second: str
    schema: str
    table: str


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    route: Route
    selector: Selector

    def target(self, table: str) -> tuple[str, str]:
        return self.route.target_schema, self.route.target_table or table


def overlaps(routes: Mapping[str, Route], lists: BlockAllowRules, *, case_sensitive: bool) -> Iterator[Overlap]:
    """Every pair of one source's routes with an example that proves that they contradict each other.

    ``lists``: the source's block-allow list; a table that it excludes is no example.
    """
    rules = [
        _Rule(
            name,
            route,
            Selector(
                compile_pattern(route.schema_pattern, case_sensitive),
                compile_pattern(route.table_pattern, case_sensitive) if route.table_pattern else None,
            ),
        )
        for name, route in routes.items()
    ][:_MAX_RULES]
    each = len(rules) + len(lists.do_tables) + len(lists.ignore_tables) + len(lists.do_dbs) + len(lists.ignore_dbs) + 1
    budget = iter(range(_MAX_WORK // each))
    for one, two in itertools.combinations(rules, 2):
        if one.selector.more_specific_than(two.selector) or two.selector.more_specific_than(one.selector):
            continue
        found = (names for names, _ in zip(_examples(one, two, rules, lists, case_sensitive), budget, strict=False))
        example = next((names for names in found if names is not None), None)
        if example is not None:
            yield Overlap(one.name, two.name, *example)


def _examples(
    one: _Rule, two: _Rule, rules: list[_Rule], lists: BlockAllowRules, case_sensitive: bool
) -> Iterator[tuple[str, str] | None]:
    """Tables that prove it; None for each tested one that proves nothing."""
    schemas = _common(one.route.schema_pattern, two.route.schema_pattern, case_sensitive)
    tables = _common(one.route.table_pattern or "*", two.route.table_pattern or "*", case_sensitive)
    for schema, table in itertools.product(schemas, tables):
        if not (one.selector.matches(schema, table) and two.selector.matches(schema, table)):
            yield None
            continue
        if one.target(table) == two.target(table) or schema.lower() in SYSTEM_SCHEMAS:
            yield None
            continue
        best = ranked(rules, schema, table).best
        yield (schema, table) if one in best and two in best and lists.passes(schema, table) else None


def _common(one: str, two: str, case_sensitive: bool) -> tuple[str, ...]:
    """Names that both patterns might match; the caller must test them."""
    expressions = [text for text in (one, two) if text.startswith("~")]
    if not expressions:
        exact = _both(one, two, case_sensitive)
        return () if exact is None else tuple(dict.fromkeys((exact, *_instances(one), *_instances(two))))
    found: list[str] = []
    for text in (one, two):
        found += _guesses(text[1:]) if text.startswith("~") else _instances(text)
    return tuple(dict.fromkeys(name for name in found if name))


def _instances(pattern: str) -> list[str]:
    """Some names of a wildcard pattern."""
    stem = "".join(_single(step, True) or "a" for step in _TOKEN.findall(pattern.removesuffix("*")))
    return [stem + filler for filler in _FILLERS] if pattern.endswith("*") else [stem]


def _guesses(expression: str) -> list[str]:
    """Some names that a simple regular expression may match, made by reading it as text."""
    stem = re.sub(r"\(\?[:iPms<>\w]*|[\^$()]", "", expression)
    stem = re.sub(r"\\d|\[0-9\]|\\w|\[a-z\]", "1", stem)
    stem = re.sub(r"(.)[*?]", r"", stem.replace(".*", "").replace(".+", "a"))
    stem = re.sub(r"[+\\]|\{[^}]*\}", "", stem).partition("|")[0]
    return [stem + filler for filler in _FILLERS]


def _both(one: str, two: str, case_sensitive: bool) -> str | None:
    """A name that two wildcard patterns match; None: there is none."""
    name = ""
    for left, right in itertools.zip_longest(_TOKEN.findall(one), _TOKEN.findall(two), fillvalue=""):
        if "*" in (left, right):
            rest = two if left == "*" else one
            return _longer(name, rest, case_sensitive) or "a"
        if not left or not right:
            return None
        matching = [compile_pattern(step, case_sensitive) for step in (left, right)]
        literals = "".join(step for step in (left, right) if len(step) == 1 and step != "?")
        inside = "".join(re.findall(r"[^\[\]!-]", left + right))
        fitting = (each for each in literals + inside + _CHARACTERS if all(p.matches(each) for p in matching))
        character = next(fitting, None)
        if character is None:
            return None
        name += character
    return name


def _longer(name: str, pattern: str, case_sensitive: bool) -> str:
    """``name`` completed so that the rest of a wildcard pattern matches."""
    tokens = _TOKEN.findall(pattern.removesuffix("*"))
    return name + "".join(_single(step, case_sensitive) or "a" for step in tokens[len(name) :])


def _single(step: str, case_sensitive: bool) -> str | None:
    """A character that an element of a wildcard pattern matches."""
    if len(step) == 1 and step != "?":
        return step
    pattern = compile_pattern(step, case_sensitive)
    inside = "".join(re.findall(r"[^\[\]!-]", step))
    return next((each for each in _CHARACTERS + inside if each != "?" and pattern.matches(each)), None)
