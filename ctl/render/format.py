"""Numbers formatted for reading: rows, bytes, durations, shares. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_BARS = "▁▂▃▄▅▆▇█"


def rows(count: int) -> str:
    """``1234567`` → ``"1,234,567"``."""
    return f"{count:,}"


def rate(per_second: float) -> str:
    """Rows per second; ``"–"`` for none, one decimal below ten."""
    if per_second <= 0 or not math.isfinite(per_second):
        return "–"
    return f"{per_second:.1f}" if per_second < 9.95 else f"{per_second:,.0f}"


def size(count: int) -> str:
    """Bytes in binary units: ``1536`` → ``"1.5 KiB"``."""
    value = float(count)
    for unit in _BYTE_UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_BYTE_UNITS[-1]}"


def duration(seconds: float) -> str:
    """``0.007`` → ``"7 ms"``, ``12.3`` → ``"12.3 s"``, ``185`` → ``"3m 05s"``, ``90000`` → ``"1d 01h"``."""
    if seconds < 0 or not math.isfinite(seconds):
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"


def share(done: int, total: int) -> float:
    """``done`` of ``total`` as 0…1; an estimate that was too low never shows more than all."""
    if total <= 0:
        return 0.0
    return min(1.0, done / total)


def percent(part: float) -> str:
    """A share as ``"73.1 %"``; 100 % only when all is done."""
    if part >= 1.0:
        return "100 %"
    return f"{math.floor(part * 1000) / 10:.1f} %"


def sparkline(values: tuple[float, ...]) -> str:
    """A row of bars, scaled to the highest value; empty without values."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * (len(_BARS) - 1) + 0.5))] for value in values)


def moment(unix: float) -> str:
    """A Unix time as ``"2026-01-02 03:04:05"``, in UTC; ``"?"`` for what is none, as a record may hold."""
    try:
        return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"
