"""The benchmark's arithmetic and what it prints."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.figures import FIGURES, Goal, json_line, number, percentile, ratio, table


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7.0], 50, 7.0),
        ([7.0], 99, 7.0),
        ([1.0, 2.0], 50, 1.0),
        ([1.0, 2.0], 51, 2.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([float(value) for value in range(100, 0, -1)], 99, 99.0),
        ([float(value) for value in range(1, 101)], 100, 100.0),
        ([float(value) for value in range(1, 501)], 99, 495.0),
    ],
)
def test_percentile_is_a_measured_value(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


@pytest.mark.parametrize(("values", "share"), [([], 50.0), ([1.0], 0.0), ([1.0], 100.5)])
def test_no_percentile_of_nothing(values: list[float], share: float) -> None:
    with pytest.raises(ValueError):
        percentile(values, share)


def test_a_ratio_needs_both_figures() -> None:
    assert ratio(3.0, 4.0) == 0.75
    assert ratio(None, 4.0) is None
    assert ratio(3.0, None) is None
    assert ratio(3.0, 0.0) is None


@pytest.mark.parametrize(
    ("value", "expected"), [(123456.7, "123,457"), (8.0, "8"), (99.95, "100.0"), (23.976, "24.0"), (0.6, "0.60")]
)
def test_numbers_as_people_read_them(value: float, expected: str) -> None:
    assert number(value) == expected


def test_a_goal_holds_at_its_bound() -> None:
    assert Goal(least=10).holds(10)
    assert not Goal(least=10).holds(9.99)
    assert Goal(most=40).holds(40)
    assert not Goal(most=40).holds(40.01)
    assert Goal().holds(0)


def test_the_table_has_a_line_per_figure_and_reports_what_was_missed() -> None:
    lines = table({"drain_changes_per_s": 74_999.0, "lag_p50_ms": 10.0, "full_rows_per_s": 5.0}).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [figure.name for figure in FIGURES]
    by_name = {line.split()[0]: line.split() for line in lines}
    assert by_name["drain_changes_per_s"][1:5] == ["74,999", "≥", "75,000", "MISSED"]
    assert by_name["lag_p50_ms"][1:5] == ["10", "≤", "10", "ok"]
    assert by_name["full_rows_per_s"][1:3] == ["5", "history:"]
    assert by_name["relay_mb_per_s"][1:4] == ["-", "≥", "150"]


def test_the_json_line_names_every_figure() -> None:
    line = json_line({"drain_changes_per_s": 81234.56, "drain_ratio": 0.61234}, {"drain_seconds": 7.38888, "rows": 3})
    assert "\n" not in line
    found = json.loads(line)
    assert list(found) == [*(figure.name for figure in FIGURES), "more"]
    assert found["drain_changes_per_s"] == 81235
    assert found["drain_ratio"] == 0.612
    assert found["lag_p50_ms"] is None
    assert found["more"] == {"drain_seconds": 7.389, "rows": 3}
