"""Lag and rate over a time as two lines of bars. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shardmerge.ctl.render import format
from shardmerge.proto import state_pb2

WIDTH = 60
_NONE = " "


def lag_and_rate(samples: Sequence[state_pb2.HistorySample]) -> list[tuple[str, str, str]]:
    """(name, bars, figures) for the lag and the rate; none without samples."""
    if not samples:
        return []
    begin, end = samples[0].at, samples[-1].at
    lags = [one for one in samples if has_lag(one)]
    highest = max(lags, key=lambda one: one.highest_lag, default=None)
    lag_figures = (
        "not known"
        if highest is None
        else f"highest {format.duration(highest.highest_lag)} at {format.moment(highest.at)}, "
        f"last {format.duration(lags[-1].lag)}"
    )
    rate = max(samples, key=lambda one: one.rate)
    mean = sum(one.rate for one in samples) / len(samples)
    return [
        ("lag", bars(samples, begin, end, lambda one: one.highest_lag if has_lag(one) else None), lag_figures),
        (
            "rows/s",
            bars(samples, begin, end, lambda one: one.rate),
            f"highest {format.rate(rate.rate)} at {format.moment(rate.at)}, mean {format.rate(mean)}",
        ),
    ]


def has_lag(sample: state_pb2.HistorySample) -> bool:
    """Whether the lag of any source is known."""
    return sample.unknown < sample.sources


def bars(
    samples: Iterable[state_pb2.HistorySample],
    begin: float,
    end: float,
    value: Callable[[state_pb2.HistorySample], float | None],
) -> str:
    """The highest value in each part of the time; a blank where none is known. At most :data:`WIDTH` parts."""
    taken = list(samples)
    width = min(WIDTH, len(taken))
    parts: list[float | None] = [None] * width
    for sample in taken:
        known = value(sample)
        at = 0 if end <= begin else min(width - 1, int((sample.at - begin) / (end - begin) * width))
        if known is not None:
            parts[at] = max(known, parts[at] or 0.0)
    drawn = iter(format.sparkline(tuple(part for part in parts if part is not None)))
    return "".join(_NONE if part is None else next(drawn) for part in parts)
