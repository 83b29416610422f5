"""The pictures of the dashboards: every panel is drawn, with values and units as people read them."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from deploy.grafana.dashboards import DASHBOARDS
from deploy.grafana.model import Dashboard, Panel, Query, Row, Unit
from deploy.grafana.picture import Line, formatted, picture


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
@pytest.mark.parametrize("has_data", [True, False])
def test_every_panel_is_drawn(dashboard: Dashboard, has_data: bool) -> None:
    def data(query: Query) -> list[Line]:
        labels = {"task": "a<b", "source_id": "s", "worker": "w"}
        return [Line(f"{query.legend} {labels['task']}", [(0.0, 1.0), (5.0, math.nan), (10.0, 2.0)], labels)] * has_data

    drawn = ElementTree.fromstring(picture(dashboard, data, (0.0, 10.0)))
    texts = [(found.get("class"), found.text or "") for found in drawn.iter("{http://www.w3.org/2000/svg}text")]
    titles = [panel.title for row in dashboard.rows for panel in row.panels]
    assert [text for look, text in texts if look == "title"] == titles
    assert any("a<b" in text for _, text in texts) == has_data


def test_a_time_without_values_is_a_gap() -> None:
    dashboard = Dashboard("d", "D", (Row("R", (Panel("P", (Query("up", "up"),)),)),))
    samples = [(float(at), 1.0) for at in (*range(0, 100, 5), *range(300, 400, 5))]
    drawn = picture(dashboard, lambda query: [Line("up", samples, {})], (0.0, 400.0))
    paths = re.findall(r'<path d="([^"]*)" fill="none"', drawn)
    assert [path.count("M") for path in paths] == [2]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_234_567, Unit.PER_SECOND, "1.23 M/s"),
        (5_929, Unit.BYTES, "5.79 KiB"),
        (12, Unit.BYTES_PER_SECOND, "12 B/s"),
        (0.186, Unit.SECONDS, "186 ms"),
        (0, Unit.SECONDS, "0 s"),
        (7_200, Unit.SECONDS, "2 h"),
        (0.925, Unit.SHARE, "92%"),
        (2, Unit.STAGE, "Running"),
        (0, Unit.YES_NO, "No"),
        (math.inf, Unit.COUNT, "-"),
    ],
)
def test_values_are_short_and_have_a_unit(value: float, unit: Unit, text: str) -> None:
    assert formatted(value, unit) == text
