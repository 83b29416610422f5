"""Tests when clocks are reported to differ."""

from __future__ import annotations

import pytest

from shardmerge.proto.warnings.clocks import ClockDifference, clock_warning


@pytest.mark.parametrize(
    ("ahead", "error", "text"),
    [
        (0.9, 0.0, None),
        (-1.0, 0.0, None),
        (1.5, 0.6, None),  # the answer took so long that the difference may be 0.9 s
        (1.5, 0.4, "the clock of a is 1.5 s later than that of b"),
        (-2.0, 0.1, "the clock of a is 2.0 s earlier than that of b"),
    ],
)
def test_a_warning_only_if_the_difference_is_certain(ahead: float, error: float, text: str | None) -> None:
    found = clock_warning(ClockDifference("a", "b", ahead, error))
    assert (None if found is None else found.message) == text
    assert ClockDifference("a", "b", ahead, error).is_certain is (abs(ahead) <= 1 or found is not None)
    assert found is None or (found.name == "clocks-differ" and "chrony" in found.workaround)
