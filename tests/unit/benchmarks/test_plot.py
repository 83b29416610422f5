"""The chart of the documentation: every measured figure has a bar, in the scale of its panel."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.benchmarks.figures import FIGURES, json_line
from tests.benchmarks.plot import DOCS, PANELS, svg, values_of

_SVG = "{http://www.w3.org/2000/svg}"


def widths(text: str) -> list[int]:
    """The lengths of the bars, from top to bottom."""
    bars = [rect for rect in ElementTree.fromstring(text).iter(f"{_SVG}rect") if rect.get("x")]
    return [int(rect.attrib["width"]) for rect in bars]


def test_the_chart_in_docs_is_current() -> None:
    values = values_of((DOCS / "figures.json").read_text(encoding="utf-8"))
    same = (DOCS / "figures.svg").read_text(encoding="utf-8") == svg(values)
    assert same, "docs/img/figures.svg is outdated: run python -m tests.benchmarks.plot"


def test_the_chart_has_the_published_figures() -> None:
    page = (DOCS.parent / "reference" / "figures.md").read_text(encoding="utf-8")
    numbers = set(re.findall(r"\d[\d,.]*\d|\d", page))
    for name, value in values_of((DOCS / "figures.json").read_text(encoding="utf-8")).items():
        assert {f"{value:,.0f}", f"{value:.1f}"} & numbers, name


def test_bars_are_in_proportion_and_only_of_what_was_measured() -> None:
    text = svg({"full_rows_per_s": 50.0, "ceiling_load_rows_per_s": 100.0, "lag_p50_ms": None})
    history, ceiling = widths(text)
    assert history * 2 == ceiling
    assert "Lag" not in text


def test_the_line_of_a_run_is_found_among_its_output() -> None:
    line = json_line({"lag_p50_ms": 5.1}, {"rows": 10})
    assert values_of(f"{{not this}}\nsome text\n{line}\n") == {"lag_p50_ms": 5.1}
    with pytest.raises(ValueError, match="no line"):
        values_of("some text")


def test_every_bar_is_a_figure_of_the_benchmark() -> None:
    assert {bar.figure for panel in PANELS for bar in panel.bars} <= {figure.name for figure in FIGURES}
