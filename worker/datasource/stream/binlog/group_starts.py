# cython: language_level=3, cdivision=True
"""Finds where the event groups of a block begin. Compiled by Cython; plain Python where it is not compiled."""

from __future__ import annotations

import cython

from shardmerge.worker.binlog.event_kinds import GTIDS
from shardmerge.worker.binlog.events import EventType

if not cython.compiled:
    from shardmerge.worker.binlog.little_endian import event_size

_OTHER = cython.declare(cython.int, 0)
_GTID = cython.declare(cython.int, 1)
_QUERY = cython.declare(cython.int, 2)
_KINDS = bytes(1 if code in GTIDS else 2 if code == EventType.QUERY else 0 for code in range(256))


def group_starts(events: bytes) -> list[int]:
    """The bytes of ``events``, verified whole events, at which a GTID event is, or a BEGIN without one before it."""
    data: cython.p_uchar = events
    kinds: cython.p_uchar = _KINDS
    total: cython.Py_ssize_t = len(events)
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    kind: cython.int
    before: cython.int = 0
    found: list[int] = []
    while at < total:
        size = event_size(data, at)
        kind = kinds[data[at + 4]]
        if kind == _GTID or (kind == _QUERY and before != _GTID and _is_begin(data, at, at + size)):
            found.append(at)
        before = kind
        at += size
    return found


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_begin(data: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Whether the statement of a QUERY begins with BEGIN."""
    start: cython.Py_ssize_t = at + 32 + (data[at + 30] | data[at + 31] << 8) + data[at + 27] + 1
    return (
        end - start >= 5
        and data[start] == 66
        and data[start + 1] == 69
        and data[start + 2] == 71
        and data[start + 3] == 73
        and data[start + 4] == 78
    )
