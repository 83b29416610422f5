"""Sets how many examples hypothesis makes for a test."""

from __future__ import annotations

from hypothesis import settings

FAST_EXAMPLES = 15
"""Examples of a test without a number of its own, in `tests/run.sh fast`."""

USUAL_EXAMPLES = 100
"""Of hypothesis, and of the grid; the default run makes half as many."""


def examples(count: int) -> int:
    """Return ``count`` for the grid; elsewhere fewer, in the proportion of other tests."""
    return max(FAST_EXAMPLES, count * settings().max_examples // USUAL_EXAMPLES)
