"""What a task will take, before it runs: connections, Spark slots, seconds, bytes. Pure.

Figures are of the kind that decides between "plenty" and "not enough": from the servers' own estimates of rows and
bytes, and from rates that were measured on modest machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proto import config_pb2 as config
from proto.config import defaults
from worker.table import Table

ROWS_PER_SECOND = 20_000
"""A copy's pace, all readers of one source together: a quarter of what a small target was seen to take."""

BYTES_PER_SECOND = 10 << 20
"""The same for wide rows."""

_RELAY = 3  # the dump, the watch on the binlog's end, the clock
_DRIVER = 2  # the run itself, and a statement or a table's structure at a time


@dataclass(frozen=True, slots=True)
class Slots:
    """Spark tasks of one subtask: ``copying`` its tables, ``following`` the stream; 0: it does not do that."""

    copying: int
    following: int

    @property
    def at_once(self) -> int:
        """One comes after the other."""
        return max(self.copying, self.following)

    @property
    def with_joins(self) -> int:
        """Tables that join later are copied, then followed, beside the stream."""
        return self.following + max(self.copying, self.following) if self.following else self.copying


def slots_of(subtask: config.SubTaskConfig) -> Slots:
    copies = subtask.mode != config.TASK_MODE_INCREMENTAL
    follows = subtask.mode != config.TASK_MODE_FULL
    return Slots(
        (subtask.snapshot.threads or defaults.READERS) if copies else 0,
        (subtask.replicate.lanes or defaults.LANES) if follows else 0,
    )


@dataclass(frozen=True, slots=True)
class Connections:
    """The most that are open at one time. ``parts``: what they are, for people."""

    count: int
    parts: str


def at_source(subtask: config.SubTaskConfig, *, locks: bool) -> Connections:
    """Of one subtask and its source's relay. ``locks``: some tables are read under LOCK TABLES, a second connection of
    each reader."""
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
    """Of all subtasks of a task: they share the target."""
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
    rows: int
    size: int  # bytes


def size_of(tables: Iterable[Table]) -> Size:
    """By the source's estimates."""
    rows = size = 0
    for table in tables:
        rows += table.row_estimate
        size += table.byte_estimate
    return Size(rows, size)


def copy_seconds(size: Size, snapshot: config.SnapshotConfig) -> float:
    """How long the copy may take."""
    rows_per_second = min(snapshot.rows_per_second or ROWS_PER_SECOND, ROWS_PER_SECOND)
    bytes_per_second = min(snapshot.bytes_per_second or BYTES_PER_SECOND, BYTES_PER_SECOND)
    return max(size.rows / rows_per_second, size.size / bytes_per_second)


def shown_bytes(count: float) -> str:
    """ "1.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def shown_seconds(seconds: float) -> str:
    """ "2 days", "3 hours", "40 s"."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"
