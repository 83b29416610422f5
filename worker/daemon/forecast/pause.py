"""How long a task or a relay may stay paused. Pure.

While a task is paused, the relay continues to fetch, and keeps all that the task needs: a purge never removes that. So
the disk of the relay log runs out first. While the relay is paused or cannot fetch, the source's own limit applies.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.warnings.readable import duration, moment, size
from shardmerge.worker.daemon.forecast.binlog_expiry import BinlogExpiry, Expiry, ExpiryUnknown, NoLimit
from shardmerge.worker.daemon.forecast.relay_disk import RelayDisk

RELAY_DISK, SOURCE_BINLOG = "relay-disk", "source-binlog"

_LONGEST_SECONDS = 10 * 366 * 86_400.0
"""What lasts longer counts as without a limit."""


@dataclass(frozen=True, slots=True)
class Lasts:
    """``limit`` runs out after ``seconds``. ``text``: the sentence about it."""

    limit: str
    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class NothingRunsOut:
    """Nothing runs out, as far as it can be foreseen."""

    text: str


@dataclass(frozen=True, slots=True)
class PauseUnknown:
    """``why``: one phrase."""

    why: str


PauseForecast = Lasts | NothingRunsOut | PauseUnknown


def relay_pause(expiry: BinlogExpiry, now: float) -> PauseForecast:
    """If the relay is paused from now on. ``now``: the worker's clock."""
    match expiry:
        case Expiry(left=left) if left < _LONGEST_SECONDS:
            text = (
                f"the relay may stay paused for at least {duration(left)}, until {moment(now + left)}: then the source "
                "may delete binlog that is not fetched"
            )
            return Lasts(SOURCE_BINLOG, left, text)
        case Expiry() | NoLimit():
            return NothingRunsOut(
                "the relay may stay paused: the source has no limit after which it deletes its binlog, unless an "
                "operator purges it or its disk is full"
            )
        case ExpiryUnknown(why=why):
            return PauseUnknown(why)


def task_pause(disk: RelayDisk | None, expiry: BinlogExpiry, now: float, *, is_fetching: bool) -> PauseForecast:
    """If a task is paused from now on. ``disk``: None if the disk does not answer."""
    if not is_fetching:
        match relay_pause(expiry, now):
            case Lasts(limit=limit, seconds=seconds):
                text = (
                    f"the task may stay paused for at least {duration(seconds)}, until {moment(now + seconds)}: the "
                    "relay does not fetch, and then the source may delete binlog that is not fetched"
                )
                return Lasts(limit, seconds, text)
            case NothingRunsOut():
                return NothingRunsOut(
                    "the task may stay paused: the relay does not fetch, and the source has no limit after which it "
                    "deletes its binlog"
                )
            case PauseUnknown() as unknown:
                return unknown
    if disk is None:
        return PauseUnknown("the disk of the relay log does not answer")
    if disk.written is None or disk.is_speed_unknown:
        measured = 0.0 if disk.written is None else disk.written.seconds
        return PauseUnknown(
            f"the source's speed has been measured for {duration(measured)} only; the relay log has {size(disk.room)} "
            "left on its disk"
        )
    seconds = disk.written_in
    measured = duration(disk.written.seconds)
    if seconds is None or seconds > _LONGEST_SECONDS:
        return NothingRunsOut(
            f"the task may stay paused: the source has written almost nothing for {measured}, and the relay log has "
            f"{size(disk.room)} left on its disk"
        )
    text = (
        f"the task may stay paused for about {duration(seconds)}, until {moment(now + seconds)}: then the disk of the "
        f"relay log is full ({size(disk.room)} left, {size(disk.written.per_second)}/s in the last {measured})"
    )
    return Lasts(RELAY_DISK, seconds, text)


def to_proto(forecast: PauseForecast, source: str, now: float) -> pb.PauseLimit:
    match forecast:
        case Lasts(limit=limit, seconds=seconds, text=text):
            return pb.PauseLimit(source=source, limit=limit, seconds=seconds, until=now + seconds, text=text)
        case NothingRunsOut(text=text):
            return pb.PauseLimit(source=source, text=text)
        case PauseUnknown(why=why):
            return pb.PauseLimit(source=source, unknown=why, text=f"how long the pause may last is not known: {why}")
