"""Estimates what a task will need: connections, Spark slots, seconds, bytes. Pure.

The estimates are rough, good enough to decide between "plenty" and "not enough". They use the servers' own estimates of
rows and bytes, and rates that were measured on modest machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardmerge.proto import config_pb2 as config
from shardmerge.proto.config import defaults
from shardmerge.worker.core.table import Table

ROWS_PER_SECOND = 20_000
"""Rate of a copy, all readers of one source together: a quarter of the rate measured with a small target."""

BYTES_PER_SECOND = 10 << 20
"""The same for wide rows."""

_RELAY = 3  # the dump, the watch of the binlog's end, the clock
_DRIVER = 2  # the run itself, and one for a statement or a table's structure


@dataclass(frozen=True, slots=True)
class SubtaskSlots:
    """Spark tasks of one subtask: ``copying`` its tables, ``following`` the stream; 0: it has no such phase."""

    copying: int
    following: int

    @property
    def at_once(self) -> int:
        """The most tasks at one time: the copy ends before the stream begins."""
        return max(self.copying, self.following)

    @property
    def least(self) -> int:
        """The slots without which it cannot run: one reader copies alone, while lanes wait for each other."""
        return max(min(self.copying, 1), self.following)

    @property
    def with_joins(self) -> int:
        """The most tasks while further tables join: those are copied, then followed, in parallel with the stream."""
        return self.following + max(self.copying, self.following) if self.following else self.copying


def slots_of(subtask: config.SubTaskConfig) -> SubtaskSlots:
    copies = subtask.mode != config.TASK_MODE_INCREMENTAL
    follows = subtask.mode != config.TASK_MODE_FULL
    return SubtaskSlots(
        (subtask.snapshot.threads or defaults.READERS) if copies else 0,
        (subtask.replicate.lanes or defaults.LANES) if follows else 0,
    )


@dataclass(frozen=True, slots=True)
class Connections:
    """The most connections that are open at one time. ``parts``: what they are for, as text."""

    count: int
    parts: str


def at_source(subtask: config.SubTaskConfig, *, locks: bool) -> Connections:
    """Connections of one subtask and its source's relay. ``locks``: some tables are read under LOCK TABLES, for which
    each reader opens a second connection."""
    readers = slots_of(subtask).copying
    parts = [f"{_RELAY} of the relay", f"{_DRIVER} of the task"]
    count = _RELAY + _DRIVER
    if readers:
        each = readers * (2 if locks else 1)
        limited = bool(subtask.snapshot.max_threads_running or subtask.snapshot.max_replica_lag)
        count += each + 1 + limited
        parts.append(f"{each + 1 + limited} of {readers} chunk readers and their planner")
    return Connections(count, ", ".join(parts))


def at_target(subtasks: Iterable[config.SubTaskConfig]) -> Connections:
    """Connections of all subtasks of a task: they share the target."""
    count = sources = tasks = 0
    for subtask in subtasks:
        slots = slots_of(subtask)
        # The run, the planner or the statements' driver, secondary indexes that are added.
        count += slots.at_once + 3
        tasks += slots.at_once
        sources += 1
    return Connections(count, f"{tasks} of lanes or chunk readers, 3 of each of {sources} source(s)")


@dataclass(frozen=True, slots=True)
class Size:
    """Rows and bytes of a source's tables."""

    rows: int
    size: int  # bytes


def size_of(tables: Iterable[Table]) -> Size:
    """The size of ``tables``, by the source's estimates."""
    rows = size = 0
    for table in tables:
        rows += table.row_estimate
        size += table.byte_estimate
    return Size(rows, size)


def copy_seconds(size: Size, snapshot: config.SnapshotConfig) -> float:
    """The estimated duration of the copy."""
    rows_per_second = min(snapshot.rows_per_second or ROWS_PER_SECOND, ROWS_PER_SECOND)
    bytes_per_second = min(snapshot.bytes_per_second or BYTES_PER_SECOND, BYTES_PER_SECOND)
    return max(size.rows / rows_per_second, size.size / bytes_per_second)


def shown_bytes(count: float) -> str:
    """A size as text: "1.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def shown_seconds(seconds: float) -> str:
    """A duration as text: "2 days", "3 hours", "40 s"."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"
