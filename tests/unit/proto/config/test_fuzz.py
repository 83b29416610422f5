"""A sample of `python -m tests.fuzz config`, and the whole of it when the grid is run."""

from __future__ import annotations

import pytest

from tests.fuzz.configs import run


def test_damaged_files_become_a_model_or_a_coded_error() -> None:
    report = run(seed=1, first=0, count=300)
    assert not report.fault, report.fault
    assert {"a model", "invalid-configuration", "not-yaml"} <= report.outcomes.keys()


@pytest.mark.grid
def test_ten_thousand_damaged_files() -> None:
    report = run(seed=2, first=0, count=10_000)
    assert not report.fault, report.fault
