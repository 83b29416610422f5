"""Two-phase (XA) transactions between their PREPARE and their end: which groups of the relay log wait for a COMMIT.

A prepared group is not given out where it stands but in place of its XA COMMIT, and not at all after an XA ROLLBACK.
Each segment begins with the list of those that wait there; the index of a segment holds what changed in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from worker.binlog.xa import Xid

_GROUP = struct.Struct("<QQQBIBB")


@dataclass(frozen=True, slots=True)
class PreparedGroup:
    """A prepared group's place: segment, first byte, byte behind it.

    ``whole``: it went back to a savepoint, or was not written as a transaction should be: its rows have to be judged
    together.
    """

    xid: Xid
    segment: int
    start: int
    end: int
    whole: bool


def pack_groups(groups: Iterable[PreparedGroup]) -> bytes:
    return b"".join(
        _GROUP.pack(
            group.segment,
            group.start,
            group.end,
            group.whole,
            group.xid.form,
            len(group.xid.gtrid),
            len(group.xid.bqual),
        )
        + group.xid.gtrid
        + group.xid.bqual
        for group in groups
    )


def unpack_groups(data: bytes) -> tuple[PreparedGroup, ...]:
    found: list[PreparedGroup] = []
    at = 0
    while at < len(data):
        segment, start, end, whole, form, gtrid, bqual = _GROUP.unpack_from(data, at)
        at += _GROUP.size
        xid = Xid(form, data[at : at + gtrid], data[at + gtrid : at + gtrid + bqual])
        at += gtrid + bqual
        found.append(PreparedGroup(xid, segment, start, end, bool(whole)))
    return tuple(found)
