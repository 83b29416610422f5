"""Waiting for a condition with a deadline; tests never sleep for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str, seconds: float = 300.0, every: float = 0.05) -> T:
    """Poll ``condition`` until it is truthy and return that; AssertionError with ``what`` at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what} (last seen: {value!r})")
        time.sleep(every)
