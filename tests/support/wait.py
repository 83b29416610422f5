"""Waits for a condition with a deadline; tests never sleep for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_LONGEST_PAUSE = 1.0


def until(condition: Callable[[], T | None], what: str, seconds: float = 300.0, every: float = 0.05) -> T:
    """Poll ``condition`` until it is truthy and return its value; AssertionError with ``what`` at the deadline.

    ``every``: the least number of seconds between two polls. An expensive poll (each dmctl is a process) is followed by
    a pause of twice its duration: waiting must not use the processors that the awaited event needs.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what} (last seen: {value!r})")
        time.sleep(max(every, min(2 * (now - began), _LONGEST_PAUSE)))
