"""The worker itself: its clock beside the others', its Spark, its disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from proto import config_pb2 as config
from proto import errors
from proto import worker_pb2 as pb
from worker import source_time
from worker.check.estimates import shown_bytes, shown_seconds, slots_of
from worker.check.findings import Checklist, failed, passed, warned
from worker.check.history import Binlogs
from worker.connection import Session

SKEW_SECONDS = 5.0
"""Clocks that differ by more are told of."""

_DAY = 86400


@dataclass(frozen=True, slots=True)
class SparkRoom:
    """Slots for Spark tasks that live; ``lost``: the driver is gone."""

    total: int
    free: int
    lost: bool = False


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What the worker says of itself. ``relay_dir``: parent of the sources' relay logs; ``runs``: the subtask has a
    run here already, whose slots it keeps."""

    name: str
    spark: SparkRoom
    relay_dir: Path
    runs: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A clock beside this worker's: ahead by ``ahead`` seconds, give or take ``error``."""

    whose: str
    ahead: float
    error: float


def read_clock(session: Session, whose: str, now: Callable[[], float] = time.time) -> Reading:
    """Raises ``pymysql.MySQLError``."""
    before = now()
    there = source_time.now(session)
    after = now()
    return Reading(whose, there - (before + after) / 2, (after - before) / 2)


def check_clocks(
    checklist: Checklist, source: Session | None, target: Session | None, master_now: float, came: float
) -> None:
    """``master_now``: what the master's clock said when it asked, ``came``: what this one said then; 0.0: not told."""

    def find() -> Iterator[pb.CheckResult]:
        readings: list[Reading] = []
        if source is not None:
            readings.append(read_clock(source, f"source {checklist.source}"))
        if target is not None:
            readings.append(read_clock(target, "target"))
        if master_now:
            # The question's way here counts as a difference: milliseconds.
            readings.append(Reading("master", master_now - came, 0.0))
        differences = skewed(readings)
        if differences:
            found = errors.check_room.CLOCK_SKEW(differences="; ".join(differences), limit=f"{SKEW_SECONDS:g}")
            yield warned("clock_skew", checklist.source, found)

    checklist.run("clock_skew", find)


def skewed(readings: list[Reading]) -> list[str]:
    """Each pair of clocks that surely differ by more than is allowed, the worker's own among them. Pure."""
    clocks = [Reading("worker", 0.0, 0.0), *readings]
    found: list[str] = []
    for place, one in enumerate(clocks):
        for other in clocks[place + 1 :]:
            apart = other.ahead - one.ahead
            if abs(apart) - one.error - other.error > SKEW_SECONDS:
                word = "ahead of" if apart > 0 else "behind"
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
    free = room.total if worker.runs else room.free
    said = {"worker": worker.name, "free": free, "total": room.total}
    if slots.at_once > free:
        purpose = f"{slots.copying} chunk readers, then {slots.following} lanes"
        wanted = room.total - free + slots.with_joins
        yield failed(
            "spark",
            source,
            errors.check_room.SPARK_SLOTS(**said, purpose=purpose, needed=slots.at_once, wanted=wanted),
        )
    elif slots.with_joins > free:
        wanted = room.total - free + slots.with_joins
        yield warned(
            "spark", source, errors.check_room.SPARK_SLOTS_TIGHT(**said, needed=slots.with_joins, wanted=wanted)
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
            told = {
                "growth": shown_bytes(growth),
                "seconds": shown_seconds(copy_seconds),
                "rate": shown_bytes(3600 * rate),
            }
            yield failed("relay_disk", checklist.source, errors.check_room.RELAY_DISK(**place, **told))
            return
        reason, way_out = short_of(free, purge.remain_space_gib << 30, rate)
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


def short_of(free: float, remain_space: int, rate: float) -> tuple[str, str]:
    """Why so many free bytes are few, and what to do; ("", "") when they are not. Pure. ``rate``: bytes a second."""
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
    """Bytes that this process may write where ``directory`` is or will be. Raises OSError."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
