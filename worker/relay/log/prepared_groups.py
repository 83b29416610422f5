"""The prepared groups of the relay log: XA (two-phase) transactions between their PREPARE and their end.

A prepared group is not served at its own position but in place of its XA COMMIT, and not at all after an XA ROLLBACK.
Each segment begins with the list of the prepared groups at its start; its index has the changes to that list.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from shardmerge.worker.binlog.xa_events import Xid

_GROUP = struct.Struct("<QQQBIBB")


@dataclass(frozen=True, slots=True)
class PreparedGroup:
    """The location of a prepared group: segment, first byte, byte after it.

    ``whole``: it rolled back to a savepoint, or is not in the usual format of a transaction: it must be decoded as a
    whole.
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
