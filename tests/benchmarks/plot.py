"""Draws the chart of the documentation from the benchmark's JSON line.

``python -m tests.benchmarks.plot [FILE] [--out SVG]``; the default FILE is ``docs/img/figures.json``, the line with the
published figures. The SVG is written as text, so that no plotting library is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tests.benchmarks.figures import Values, number

DOCS = Path(__file__).resolve().parents[2] / "docs" / "img"
_WIDTH, _LEFT, _RIGHT, _BAR, _GAP = 760, 250, 110, 22, 8
_COLOURS = ("#3f51b5", "#b0bec5")


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a figure of the benchmark under a name for people; ``ceiling``: the bar shows what the target does
    alone."""

    label: str
    figure: str
    ceiling: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars with one scale."""

    title: str
    unit: str
    bars: tuple[Bar, ...]


PANELS = (
    Panel(
        "Throughput (more is better)",
        "/s",
        (
            Bar("history, rows", "full_rows_per_s"),
            Bar("target alone: LOAD DATA", "ceiling_load_rows_per_s", ceiling=True),
            Bar("backlog, skewed ids, changes", "drain_changes_per_s"),
            Bar("backlog, uniform ids, changes", "drain_uniform_changes_per_s"),
            Bar("target alone: random REPLACE", "ceiling_apply_rows_per_s", ceiling=True),
        ),
    ),
    Panel(
        "Lag from commit at a source to visible at the target (less is better)",
        " ms",
        (
            Bar("one insert, p50", "lag_p50_ms"),
            Bar("one insert, p99", "lag_p99_ms"),
            Bar("during 1,000 changes/s, p50", "lag1k_p50_ms"),
            Bar("during 1,000 changes/s, p99", "lag1k_p99_ms"),
            Bar("two commits by one client", "lag_floor_ms", ceiling=True),
        ),
    ),
)


def svg(values: Values) -> str:
    """Return the chart; figures that were not measured have no bar."""
    parts: list[str] = []
    top = 0
    for panel in PANELS:
        drawn, top = _panel(panel, values, top)
        parts += drawn
    style = "text{font:13px sans-serif;fill:#37474f}.title{font-weight:bold}"
    size = f'width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', f"<style>{style}</style>"]
    lines.append('<rect width="100%" height="100%" fill="#ffffff"/>')
    return "\n".join([*lines, *parts, "</svg>", ""])


def _panel(panel: Panel, values: Values, top: int) -> tuple[list[str], int]:
    """Return the elements of one panel that begins at ``top``, and where the next one begins."""
    measured = [(bar, value) for bar in panel.bars if (value := values.get(bar.figure)) is not None]
    if not measured:
        return [], top
    largest = max(value for _, value in measured)
    parts = [f'<text class="title" x="12" y="{top + 24}">{escape(panel.title)}</text>']
    at = top + 38
    for bar, value in measured:
        width = max(round((_WIDTH - _LEFT - _RIGHT) * value / largest), 1)
        colour = _COLOURS[bar.ceiling]
        middle = at + _BAR - 6
        parts.append(f'<text x="{_LEFT - 10}" y="{middle}" text-anchor="end">{escape(bar.label)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{at}" width="{width}" height="{_BAR}" rx="3" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + width + 8}" y="{middle}">{number(value)}{panel.unit}</text>')
        at += _BAR + _GAP
    return parts, at + 8


def values_of(text: str) -> Values:
    """Return the figures of the last line that is a JSON object. Raises ValueError if there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return _numbers(json.loads(line))
    raise ValueError("no line with a JSON object")


def _numbers(found: Mapping[str, object]) -> Values:
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the documentation's chart from the benchmark's JSON line.")
    parser.add_argument("file", nargs="?", type=Path, help="holds the line; default: docs/img/figures.json; - is stdin")
    parser.add_argument("--out", type=Path, default=DOCS / "figures.svg")
    options = parser.parse_args()
    source: Path = options.file or DOCS / "figures.json"
    text = sys.stdin.read() if str(source) == "-" else source.read_text(encoding="utf-8")
    options.out.write_text(svg(values_of(text)), encoding="utf-8")


if __name__ == "__main__":
    main()
