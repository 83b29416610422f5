"""Lists names in a message: the first few, and how many others there are."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int) -> str:
    """At most ``most`` of the names, then the number of the others. Pure."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
