"""What the walk over events and the scan of ordinary ones tell each other (worker/relay/groups.py and scan.py)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class In(enum.IntEnum):
    """Where the walk stands."""

    BETWEEN = 0  # at a group end
    HEADED = 1  # behind MySQL's GTID, or what goes before a statement: the next statement decides
    STANDALONE = 2  # behind MariaDB's GTID of one statement
    OPEN = 3  # in a transaction


@dataclass(frozen=True, slots=True)
class Free:
    """Numbers of a MySQL server (without a tag) that a GTID set lacks: from ``first`` to before ``behind``."""

    server: bytes
    first: int
    behind: int


@dataclass(frozen=True, slots=True)
class GroupHead:
    """What the GTID event of a group that has not ended said; ``exact_time`` is 0.0 if it told none."""

    gtid: str
    anonymous: bool
    exact_time: float


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the walk stands, as far as ordinary events move it; the fields are those of GroupWalker.

    ``head``: of the group at hand; None when the group may not end by the scan, or there is none.
    """

    state: In
    byte: int
    pos: int
    start_pos: int
    group_start: int
    last_mark: int
    events: int
    head: GroupHead | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a scan may go.

    ``last_entry``: byte of the index's last entry. ``limit``: byte from where on no group may begin. ``sure``: a GTID
    need not be compared with those before it; if ``by_gtid``, one of MySQL must be one of ``free``.
    """

    checksum: bool
    spacing: int
    last_entry: int
    limit: int
    sure: bool
    by_gtid: bool
    free: Free | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The last group that ended: behind it at the relay and at the source; its commit, see commit_time.py."""

    byte: int
    pos: int
    timestamp: int
    exact_time: float


@dataclass(frozen=True, slots=True)
class Passed:
    """What a scan went past.

    ``upto``: where in the buffer the next packet begins. ``first``, ``last``: where in the buffer the events lie now,
    one behind the other. ``gtids``: of the groups that ended, in order; consecutive numbers of a MySQL server as one
    interval, and of consecutive ones in a MariaDB domain from one server the last. ``anonymous``: one had none.
    ``entry_due``: at the last group's end the index needs an entry.
    """

    upto: int
    first: int
    last: int
    stand: Stand
    ended: Ended | None
    gtids: tuple[str, ...]
    anonymous: bool
    entry_due: bool
