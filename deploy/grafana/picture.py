"""Draws a dashboard with the data of a Prometheus as SVG, for the documentation. Pure.

The places of panels, their titles, legends and units are those of the dashboard in Grafana; the graphics are plain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from deploy.grafana.model import WIDTH, Dashboard, Look, Panel, Query, Unit

_COLUMN, _LINE, _GAP = 50, 30, 8
_COLOURS = (
    "#3f51b5",
    "#e65100",
    "#2e7d32",
    "#ad1457",
    "#00838f",
    "#6d4c41",
    "#9e9d24",
    "#5e35b1",
    "#546e7a",
    "#c62828",
)
_STAGES = {1: "New", 2: "Running", 3: "Paused", 4: "Stopped", 5: "Finished"}
_STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY_STEPS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_LEGENDS = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A series under its legend: (Unix time, value)."""

    legend: str
    samples: Sequence[tuple[float, float]]
    labels: Mapping[str, str]


Data = Callable[[Query], Sequence[Line]]
"""The series of a query over the period of the picture."""


def picture(dashboard: Dashboard, data: Data, period: tuple[float, float]) -> str:
    """The dashboard as an SVG document; ``period``: begin and end, in Unix seconds."""
    parts: list[str] = []
    top = 44
    for row in dashboard.rows:
        parts.append(_text(_GAP, top + 16, row.title, "row"))
        top += 26
        left = height = 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            size = panel.width * _COLUMN - _GAP, panel.height * _LINE - _GAP
            body = "".join(_panel(panel, data, size, period))
            parts.append(f'<g transform="translate({left * _COLUMN + _GAP},{top})">{body}</g>')
            left, height = left + panel.width, max(height, panel.height * _LINE)
        top += height
    style = (
        "text{font:12px sans-serif;fill:#222}.row{font-weight:bold;font-size:14px}.title{font-weight:600}"
        ".axis,.legend{font-size:10px;fill:#555}.number{font-size:26px;fill:#1b5e20}.warn{fill:#e65100}"
        ".small{font-size:17px}.alarm{fill:#b71c1c}.head{font-size:20px}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * _COLUMN + _GAP} {top + _GAP}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#f4f5f7"/>'
        f"{_text(_GAP, 28, dashboard.title, 'head')}{''.join(parts)}</svg>\n"
    )


def _panel(panel: Panel, data: Data, size: tuple[int, int], period: tuple[float, float]) -> Iterator[str]:
    width, height = size
    yield f'<rect width="{width}" height="{height}" fill="#fff" stroke="#d0d3d8" rx="3"/>'
    yield _text(8, 16, panel.title, "title")
    match panel.look:
        case Look.NUMBER:
            yield from _numbers(panel, [line for query in panel.queries for line in data(query)], size)
        case Look.TABLE:
            yield from _table(panel, data, size)
        case Look.LINES:
            yield from _lines(panel, [line for query in panel.queries for line in data(query)], size, period)


def _numbers(panel: Panel, lines: Sequence[Line], size: tuple[int, int]) -> Iterator[str]:
    width, height = size
    if not lines:
        yield _text(width // 2, height // 2 + 8, "no data", "axis", "middle")
    shown = lines[:4]
    for number, line in enumerate(shown):
        x = round(width * (number % 2 + 0.5) / min(2, len(shown))) if len(shown) > 1 else width // 2
        y = 60 if len(shown) <= 2 else 48 + number // 2 * 46
        value = line.samples[-1][1]
        look = "number" if len(shown) == 1 else "number small"
        if panel.alarm is not None and value >= panel.alarm:
            look += " alarm"
        elif panel.warn is not None and value >= panel.warn:
            look += " warn"
        yield _text(x, y, formatted(value, panel.unit), look, "middle")
        yield _text(x, y + 16, _short(line.legend, 28), "legend", "middle")


def _table(panel: Panel, data: Data, size: tuple[int, int]) -> Iterator[str]:
    """One line for each set of labels that the queries share, one column for each query."""
    width, height = size
    found = [{_key(line): line.samples[-1][1] for line in data(query)} for query in panel.queries]
    ranks = [values for query, values in zip(panel.queries, found, strict=True) if query.legend == panel.rank]
    keys = sorted({key for values in found for key in values}, key=lambda key: [-each.get(key, 0.0) for each in ranks])
    shown = [(query, values) for query, values in zip(panel.queries, found, strict=True) if query.legend != panel.rank]
    step = (width - 190) / max(len(shown), 1)
    for column, (query, _) in enumerate(shown):
        yield _text(190 + round(column * step), 40, query.legend, "legend")
    for number, key in enumerate(keys[: (height - 50) // 18]):
        y = 60 + number * 18
        yield _text(8, y, _short(" ".join(value for _, value in key), 30), "")
        for column, (query, values) in enumerate(shown):
            if key in values:
                yield _text(190 + round(column * step), y, formatted(values[key], query.unit), "")


def _key(line: Line) -> tuple[tuple[str, str], ...]:
    return tuple((name, line.labels[name]) for name in ("task", "source_id", "worker") if name in line.labels)


def _lines(panel: Panel, lines: Sequence[Line], size: tuple[int, int], period: tuple[float, float]) -> Iterator[str]:
    width, height = size
    left, top, right, bottom = 58, 28, width - 10, height - 44
    if not lines:
        yield _text(width // 2, height // 2, "no data", "axis", "middle")
        return
    drawn = [*_stacked(lines)] if panel.stacked else [(line, line.samples) for line in lines]
    values = [value for _, samples in drawn for _, value in samples if math.isfinite(value)]
    most = max(values, default=0.0) or 1.0
    begin, end = period
    for share in (0.0, 0.5, 1.0):
        y = round(bottom - share * (bottom - top))
        yield f'<path d="M{left} {y}H{right}" stroke="#e3e5e9"/>'
        yield _text(left - 6, y + 3, formatted(most * share, panel.unit), "axis", "end")
    gap = max(3 * (end - begin) / 60, 15.0)
    for number, (_, samples) in enumerate(drawn):
        colour = _COLOURS[number % len(_COLOURS)]
        path, before = "", -math.inf
        for at, value in samples:
            if not math.isfinite(value):
                continue
            x = left + (at - begin) / (end - begin) * (right - left)
            y = bottom - value / most * (bottom - top)
            path += f"{'M' if at - before > gap else 'L'}{x:.1f} {y:.1f}"
            before = at
        yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
    legends = [(number, line) for number, (line, _) in enumerate(drawn)][:_LEGENDS]
    step = (width - 16) / max(len(legends), 1)
    for place, (number, line) in enumerate(legends):
        x = 8 + round(place * step)
        yield f'<rect x="{x}" y="{height - 18}" width="10" height="3" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
        yield _text(x + 14, height - 13, _short(line.legend, int(step / 6)), "legend")
    yield _text(right, height - 30, f"{(end - begin) / 60:.0f} minutes", "axis", "end")


def _stacked(lines: Iterable[Line]) -> Iterator[tuple[Line, Sequence[tuple[float, float]]]]:
    """Each series on top of those before it."""
    below: dict[float, float] = {}
    for line in lines:
        samples: list[tuple[float, float]] = []
        for at, value in line.samples:
            below[at] = below.get(at, 0.0) + (value if math.isfinite(value) else 0.0)
            samples.append((at, below[at]))
        yield line, samples


def formatted(value: float, unit: Unit) -> str:
    """The value for people, as Grafana shows it: three digits and a unit.

    >>> formatted(1234567, Unit.PER_SECOND)
    '1.23 M/s'
    """
    if not math.isfinite(value):
        return "-"
    match unit:
        case Unit.STAGE:
            return _STAGES.get(round(value), "Invalid")
        case Unit.YES_NO:
            return "Yes" if value else "No"
        case Unit.SHARE:
            return f"{value:.0%}"
        case Unit.SECONDS:
            return _seconds(value)
        case Unit.BYTES | Unit.BYTES_PER_SECOND:
            text = _scaled(value, _BINARY_STEPS) or f"{value:.3g} B"
            return text + ("/s" if unit is Unit.BYTES_PER_SECOND else "")
        case Unit.COUNT | Unit.PER_SECOND:
            text = _scaled(value, _STEPS) or f"{value:.3g}"
            return text + ("/s" if unit is Unit.PER_SECOND else "")


def _scaled(value: float, steps: Sequence[tuple[float, str]]) -> str:
    return next((f"{value / size:.3g} {name}" for size, name in steps if abs(value) >= size), "")


def _seconds(value: float) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= 2 * size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g} s" if value >= 1 or not value else f"{value * 1000:.3g} ms"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(most - 1, 1)]}…"


def _text(x: int, y: int, text: str, look: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{look}" text-anchor="{anchor}">{escape(text)}</text>'
