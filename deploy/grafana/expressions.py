"""Reads the names of metrics and labels from expressions of Prometheus. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.proto.metrics.catalogue import CATALOGUE
from shardmerge.proto.metrics.family import Family, MetricKind

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_RANGE = re.compile(r"\[[^\]]*\]")
_LABEL_LIST = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME = re.compile(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(?!\w)\s*(?:\{([^}]*)\})?(?!\s*\()")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_WORDS = frozenset(
    [
        "and",
        "or",
        "unless",
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "group_right",
        "offset",
        "bool",
        "inf",
        "nan",
    ]
)
_CALL = re.compile(r"\b[a-z_0-9]+\s*(?=\()")
_DURATION = re.compile(r"\b\d+(?:ms|[smhdwy])\b")
SCRAPE_LABELS = frozenset({"job", "instance", "le"})
"""Labels that Prometheus or the text format adds."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric in an expression, and the labels by which its series are selected."""

    metric: str
    labels: frozenset[str]


def selectors(expression: str) -> tuple[Selector, ...]:
    """All metrics of an expression, in their order."""
    text = _STRING.sub('""', expression)
    for pattern in (_RANGE, _LABEL_LIST, _CALL, _DURATION):
        text = pattern.sub(" ", text)
    return tuple(
        Selector(found[1], frozenset(_MATCHER.findall(found[2] or "")))
        for found in _NAME.finditer(text)
        if found[1].lower() not in _WORDS
    )


def exported() -> Mapping[str, Family]:
    """Every name that a daemon exports, and its metric: a histogram and a counter of DM have several."""
    names: dict[str, Family] = {}
    for family in CATALOGUE.values():
        if family.absent:
            continue
        suffixes = ("_bucket", "_sum", "_count") if family.kind is MetricKind.HISTOGRAM else ("",)
        if family.bare:
            suffixes = ("", "_total")
        names |= {family.name + suffix: family for suffix in suffixes}
    return names
