"""Sets how many examples hypothesis makes for a test."""

from __future__ import annotations

from hypothesis import settings

FAST_EXAMPLES = 15
"""Examples of a test without a number of its own, in `tests/run.sh fast`."""

_USUAL_EXAMPLES = 100


def examples(count: int) -> int:
    """Return ``count``; under the profile "fast" at most as many as for other tests."""
    return max(FAST_EXAMPLES, count * settings().max_examples // _USUAL_EXAMPLES)
