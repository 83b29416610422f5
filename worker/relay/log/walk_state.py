"""Values that the group walker and the scan of ordinary events exchange (worker/relay/log/group_walker.py and
worker/relay/log/fast_scan.py)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from shardmerge.worker.binlog.gtid_set import GtidGap

NO_LIMIT = 1 << 62


class WalkPhase(enum.IntEnum):
    """The walk's position relative to groups."""

    BETWEEN = 0  # at a group end
    HEADED = 1  # after MySQL's GTID, or an event that precedes a statement: the next statement decides
    STANDALONE = 2  # after MariaDB's GTID of one statement
    OPEN = 3  # in a transaction


@dataclass(frozen=True, slots=True)
class GroupHead:
    """The GTID event of a group that has not ended; ``exact_time`` is 0.0 if it has none."""

    gtid: str
    anonymous: bool
    exact_time: float


@dataclass(frozen=True, slots=True)
class WalkState:
    """The state of the walk that ordinary events change; the fields are those of GroupWalker.

    ``head``: of the current group; None when the scan must not end the group, or there is none.
    """

    phase: WalkPhase
    byte: int
    pos: int
    start_pos: int
    group_start: int
    last_mark: int
    events: int
    head: GroupHead | None


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """The limits of a scan.

    ``last_entry``: byte of the index's last entry. ``limit``: no group may begin at or after this byte. ``limit_pos``:
    nor at or after this byte of the source's file. ``sure``: a GTID need not be compared with earlier ones; if
    ``by_gtid``, a MySQL GTID must be within ``gap``.
    """

    checksum: bool
    spacing: int
    last_entry: int
    limit: int
    sure: bool
    by_gtid: bool
    gap: GtidGap | None
    limit_pos: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """The end of the last group: the byte after it in the relay log and at the source; its commit time, see
    worker/binlog/commit_time.py."""

    byte: int
    pos: int
    timestamp: int
    exact_time: float


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of a scan.

    ``upto``: the start of the next packet in the buffer. ``first``, ``last``: the range of the consecutive events in
    the buffer now. ``gtids``: of the groups that ended, in order; consecutive numbers of a MySQL server as one
    interval, and of consecutive ones in a MariaDB domain from one server the last. ``anonymous``: a group had none.
    ``entry_due``: the index needs an entry at the last group's end.
    """

    upto: int
    first: int
    last: int
    state: WalkState
    ended: GroupEnd | None
    gtids: tuple[str, ...]
    anonymous: bool
    entry_due: bool
