"""Checks the worker itself: its clock against the other clocks, its Spark slots, its disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.server_clock import ClockReading, read_clock
from shardmerge.worker.verify.precheck.estimates import shown_bytes, shown_seconds, slots_of
from shardmerge.worker.verify.precheck.findings import Checklist, failed, passed, warned
from shardmerge.worker.verify.precheck.source.binlog_retention import Binlogs

SKEW_SECONDS = 5.0
"""Clocks that differ by more are reported."""

_DAY = 86400


@dataclass(frozen=True, slots=True)
class SparkSlots:
    """Slots for long-lived Spark tasks. ``promised``: other subtasks have them or are about to take them. ``lost``: the
    driver has ended."""

    total: int
    free: int
    promised: int = 0
    lost: bool = False


@dataclass(frozen=True, slots=True)
class WorkerView:
    """The state of the worker. ``relay_dir``: parent of the sources' relay logs; ``is_running``: the subtask already
    has a run here, whose slots it keeps."""

    name: str
    spark: SparkSlots
    relay_dir: Path
    is_running: bool


def check_clocks(
    checklist: Checklist, source: Session | None, target: Session | None, master_now: float, arrived: float
) -> None:
    """``master_now``: the master's clock when it sent the request, ``arrived``: ours at its arrival; 0.0: unknown."""

    def find() -> Iterator[pb.CheckResult]:
        readings: list[ClockReading] = []
        if source is not None:
            readings.append(read_clock(source, f"source {checklist.source}"))
        if target is not None:
            readings.append(read_clock(target, "target"))
        if master_now:
            # The request's travel time counts as a difference: milliseconds.
            readings.append(ClockReading("master", master_now - arrived, 0.0))
        differences = skewed(readings)
        if differences:
            found = errors.check_room.CLOCK_SKEW(differences="; ".join(differences), limit=f"{SKEW_SECONDS:g}")
            yield warned("clock_skew", checklist.source, found)

    checklist.run("clock_skew", find)


def skewed(readings: list[ClockReading]) -> list[str]:
    """Each pair of clocks that certainly differ by more than is allowed, the worker's own included. Pure."""
    clocks = [ClockReading("worker", 0.0, 0.0), *readings]
    found: list[str] = []
    for place, one in enumerate(clocks):
        for other in clocks[place + 1 :]:
            apart = other.ahead - one.ahead
            if abs(apart) - one.error - other.error > SKEW_SECONDS:
                word = "later than" if apart > 0 else "earlier than"
                found.append(f"the clock of {other.whose} is {abs(apart):.1f} s {word} that of {one.whose}")
    return found


def check_spark(checklist: Checklist, worker: WorkerView, subtask: config.SubTaskConfig) -> None:
    checklist.run("spark", lambda: _spark(checklist.source, worker, subtask))


def _spark(source: str, worker: WorkerView, subtask: config.SubTaskConfig) -> Iterator[pb.CheckResult]:
    room, slots = worker.spark, slots_of(subtask)
    if room.lost:
        yield failed("spark", source, errors.check_room.SPARK_AWAY(worker=worker.name))
        return
    # Its own run gives its slots back before it takes others.
    unpromised = max(0, room.total - room.promised)
    free = unpromised if worker.is_running else min(room.free, unpromised)
    details = {"worker": worker.name, "free": free, "total": room.total}
    if slots.least > free:
        purpose = " and then ".join(
            [*(["a chunk reader"] if slots.copying else []), *([f"{slots.following} lanes"] if slots.following else [])]
        )
        wanted = room.total - free + slots.with_joins
        yield failed(
            "spark",
            source,
            errors.check_room.SPARK_SLOTS(**details, purpose=purpose, needed=slots.least, wanted=wanted),
        )
    elif slots.with_joins > free:
        wanted = room.total - free + slots.with_joins
        yield warned(
            "spark", source, errors.check_room.SPARK_SLOTS_TIGHT(**details, needed=slots.with_joins, wanted=wanted)
        )
    else:
        yield passed("spark", source, f"{free} of {room.total} free, {slots.with_joins} are taken at most")


def check_relay_disk(
    checklist: Checklist,
    worker: WorkerView,
    purge: config.PurgeConfig,
    binlogs: Binlogs | None,
    copy_seconds: float,
) -> None:
    def find() -> Iterator[pb.CheckResult]:
        free = _free(worker.relay_dir)
        rate = binlogs.bytes_per_second if binlogs is not None else 0.0
        place = {"worker": worker.name, "directory": worker.relay_dir, "free": shown_bytes(free)}
        growth = rate * copy_seconds
        if growth > free:
            amounts = {
                "growth": shown_bytes(growth),
                "seconds": shown_seconds(copy_seconds),
                "rate": shown_bytes(3600 * rate),
            }
            yield failed("relay_disk", checklist.source, errors.check_room.RELAY_DISK(**place, **amounts))
            return
        reason, way_out = disk_shortage(free, purge.remain_space_gib << 30, rate)
        if reason:
            found = errors.check_room.RELAY_DISK_SHORT(**place, reason=reason, way_out=way_out)
            yield warned("relay_disk", checklist.source, found)
        else:
            grows = (
                f"the binlog grows by {shown_bytes(3600 * rate)} an hour"
                if rate
                else "how fast the binlog grows is not known yet"
            )
            yield passed("relay_disk", checklist.source, f"{shown_bytes(free)} free; {grows}")

    checklist.run("relay_disk", find)


def disk_shortage(free: float, remain_space: int, rate: float) -> tuple[str, str]:
    """Why ``free`` bytes are too few, and the way out; ("", "") if they suffice. Pure. ``rate``: bytes a second."""
    if free < remain_space:
        return (
            f"less than purge.remain-space, {shown_bytes(remain_space)}",
            "Nothing is lost: what no checkpoint needs is purged at once, and a task that is paused may fill the disk. "
            "Give it a larger one, or lower purge.remain-space in the source's file.",
        )
    if rate * _DAY > free - remain_space:
        return (
            f"and the source's binlog grows by {shown_bytes(rate * _DAY)} a day",
            "A task that is paused for a day fills the disk: move relay-dir to a larger one.",
        )
    return "", ""


def _free(directory: Path) -> int:
    """Bytes that this process may write on the disk where ``directory`` is or will be. Raises OSError."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
