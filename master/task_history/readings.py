"""From the workers' status to one sample of a task. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto import common_pb2, worker_pb2
from shardmerge.proto import state_pb2 as pb


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of a task at one source. ``run``: readings of the same run count rows from the same zero. ``rows``:
    that it has applied, None: it does not run. ``recent_rate``: rows per second now. ``lag``: seconds, None: not
    known."""

    source: str
    run: tuple[int, int] = (0, 0)
    rows: int | None = None
    recent_rate: float = 0.0
    lag: float | None = None
    bytes_behind: int = 0


def reading_of(source: str, status: worker_pb2.SubTaskStatus | None) -> Reading:
    """``status``: of the subtask; None: the worker did not answer, or does not have it."""
    if status is None or status.stage != common_pb2.STAGE_RUNNING:
        return Reading(source)
    run = (status.epoch, int(status.unit))
    if status.HasField("load"):
        return Reading(source, run, status.load.finished_rows, status.load.rows_per_second)
    if not status.HasField("sync"):
        return Reading(source)
    sync = status.sync
    lag = None if sync.unknown else max(sync.lag_ms, sync.oldest_ms) / 1000
    return Reading(source, run, sync.total_rows, float(sync.recent_rps), lag, sync.bytes_behind)


def sample_of(
    readings: Sequence[Reading], before: Mapping[str, Reading], at: float, seconds: float
) -> pb.HistorySample:
    """The sample of a task from readings of all of its sources. ``before``: the previous ones by source, ``seconds``
    earlier."""
    lags = [one.lag for one in readings if one.lag is not None]
    sample = pb.HistorySample(
        at=int(at),
        seconds=round(seconds),
        rate=round(sum(_rate(one, before.get(one.source), seconds) for one in readings), 1),
        bytes_behind=sum(one.bytes_behind for one in readings),
        sources=len(readings),
        unknown=len(readings) - len(lags),
    )
    if lags:
        sample.lag = sample.highest_lag = round(max(lags), 3)
    return sample


def _rate(one: Reading, before: Reading | None, seconds: float) -> float:
    if one.rows is None:
        return 0.0
    if before is None or before.rows is None or before.run != one.run or before.rows > one.rows or seconds <= 0:
        return one.recent_rate
    return (one.rows - before.rows) / seconds


def merged(samples: Iterable[pb.HistorySample]) -> pb.HistorySample:
    """One sample for the time of several: the mean rate and lag, and the highest lag."""
    taken = sorted(samples, key=lambda one: one.at)
    seconds = sum(one.seconds for one in taken)
    known = [one for one in taken if has_lag(one)]
    last = taken[-1]
    weight = seconds or len(taken)
    rate = sum(one.rate * (one.seconds if seconds else 1) for one in taken) / weight
    thinned = pb.HistorySample(
        at=last.at,
        seconds=seconds,
        rate=round(rate, 1),
        bytes_behind=max(one.bytes_behind for one in taken),
        sources=max(one.sources for one in taken),
        unknown=max(one.unknown for one in taken),
    )
    if known:
        thinned.lag = round(sum(one.lag for one in known) / len(known), 3)
        thinned.highest_lag = max(one.highest_lag for one in known)
        thinned.unknown = min(thinned.unknown, max(0, thinned.sources - 1))
    return thinned


def has_lag(sample: pb.HistorySample) -> bool:
    """Whether the lag of any source is known."""
    return sample.unknown < sample.sources
