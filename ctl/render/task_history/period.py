"""The text of `--since`: a duration up to now, or a time. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
FORMS = 'a duration such as 30m, 12h, 2d or 1w, or a time such as "2026-01-02 03:04" (UTC without an offset)'


def since_of(text: str, now: float) -> float:
    """Unix seconds; at least 0. Raises ValueError.

    >>> since_of("1d12h", 200_000.0)
    70400.0
    """
    parts = list(_PART.finditer(text))
    if parts and "".join(part.group() for part in parts) == text:
        return max(0.0, now - sum(int(part[1]) * _UNITS[part[2]] for part in parts))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"must be {FORMS}") from None
    return max(0.0, (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp())
