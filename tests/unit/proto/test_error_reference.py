"""The reference page of errors is the one that the catalogue generates."""

from __future__ import annotations

from pathlib import Path

from shardmerge.proto.error_reference import PAGE, page
from shardmerge.proto.errors import CATALOGUE

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"


def test_the_page_in_docs_is_current() -> None:
    same = (DOCS / PAGE).read_text(encoding="utf-8") == page()
    assert same, f"docs/reference/{PAGE} is outdated: run python -m shardmerge.proto.error_reference"


def test_every_error_has_a_heading() -> None:
    headings = {line for line in page().splitlines() if line.startswith("### ")}
    assert headings == {f"### {spec.code} {spec.name}" for spec in CATALOGUE.values()}


def test_placeholders_of_a_message_are_not_read_as_markup() -> None:
    """`<file>` would be an HTML element and vanish from the page."""
    text = page()
    assert "(compare with its gtid\\_purged, on MariaDB BINLOG\\_GTID\\_POS(\\<first file\\>, 4))" in text
    assert "`dmctl binlog" in text
