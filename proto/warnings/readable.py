"""Durations, sizes and times as the texts of forecasts and diagnoses name them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB")


def duration(seconds: float) -> str:
    """Two units at most: a forecast is not more exact."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7_200:
        return f"{whole // 60} min"
    if whole < 172_800:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def moment(unix: float) -> str:
    """A Unix time, in UTC."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def size(count: float) -> str:
    """Bytes in binary units: "812 KiB", "1.5 TiB"."""
    value = float(count)
    for unit in _UNITS:
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
