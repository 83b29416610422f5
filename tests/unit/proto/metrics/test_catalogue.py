"""Tests the catalogue of metrics: names, units, and the page that is generated from it."""

from __future__ import annotations

import re
from pathlib import Path

from shardmerge.proto.metrics.catalogue import CATALOGUE, DM, DM_LIBRARIES, OWN
from shardmerge.proto.metrics.family import MetricKind
from shardmerge.proto.metrics.reference import PAGE, page

_DOCS = Path(__file__).resolve().parents[4] / "docs" / "reference"
_NAME = re.compile(r"(dm|process)(_[a-z0-9]+)+")


def test_the_page_in_docs_is_current() -> None:
    same = (_DOCS / PAGE).read_text(encoding="utf-8") == page()
    assert same, f"docs/reference/{PAGE} is outdated: run python -m shardmerge.proto.metrics.reference"


def test_every_metric_is_on_the_page_once() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", page(), re.MULTILINE)
    assert sorted(listed) == sorted(CATALOGUE)


def test_all_metrics_of_dm_are_there_with_data_or_with_a_reason() -> None:
    assert len(DM) == 54
    assert sum(family.bare for family in DM) == 11
    assert len(CATALOGUE) == len(DM) + len(DM_LIBRARIES) + len(OWN), "a name is used twice"


def test_our_names_have_units_and_our_counters_end_with_total() -> None:
    for family in OWN:
        assert _NAME.fullmatch(family.name), family.name
        assert (family.kind is MetricKind.COUNTER) == family.name.endswith("_total"), family.name
        stem = family.name.removesuffix("_total")
        assert not family.unit or stem.endswith(f"_{family.unit}") or f"_{family.unit}_" in f"{stem}_", family.name
        assert not family.absent


def test_every_help_is_a_sentence() -> None:
    for family in CATALOGUE.values():
        for text in (family.help, family.absent):
            assert not text or (not text[0].islower() and text.endswith(".")), (family.name, text)
        assert family.help
        assert (family.kind is MetricKind.HISTOGRAM and not family.absent) == bool(family.buckets), family.name
