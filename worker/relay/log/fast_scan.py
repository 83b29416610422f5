# cython: language_level=3, cdivision=True
"""Scans the ordinary events of a receive buffer without an object per event: the fast path of the relay's fetcher.

Most of a binlog is transactions of rows: GTID, BEGIN (MySQL), table maps and rows, XID. This module checks their
packets and moves the events in them together. An event that is not ordinary, or not valid, ends the scan *before* it:
the appender and the group walker process it, event by event, and raise its errors. So the scan never decides
differently from them; in doubt it stops.

Compiled by Cython; plain Python where it is not compiled. Formats: MySQL Internals Manual, "Client/Server Protocol"
(packets), "Binlog Event Header", "Query Event"; MySQL's libs/mysql/binlog/event/control_events.h (Gtid_event);
MariaDB's sql/log_event.h (Gtid_log_event).
"""

from __future__ import annotations

import uuid

import cython

from shardmerge.worker.binlog import event_kinds
from shardmerge.worker.binlog.crc32 import Crc32
from shardmerge.worker.binlog.events import FLAG_ARTIFICIAL, EventType
from shardmerge.worker.relay.log.walk_state import GroupEnd, GroupHead, ScanLimits, ScanResult, WalkPhase, WalkState

if not cython.compiled:
    from shardmerge.worker.binlog.little_endian import event_end, event_size, u32, u64


# memmove is a C function: worker/relay/log/fast_scan.pxd imports it.

_CRC = Crc32()

_ROWS = cython.declare(cython.int, 1)
_GTID = cython.declare(cython.int, 2)
_ANONYMOUS = cython.declare(cython.int, 3)
_MARIADB_GTID = cython.declare(cython.int, 4)
_QUERY = cython.declare(cython.int, 5)
_XID = cython.declare(cython.int, 6)
_TREATMENT: dict[int, int] = {
    **dict.fromkeys(event_kinds.ROWS, 1),
    EventType.GTID: 2,
    EventType.ANONYMOUS_GTID: 3,
    EventType.MARIADB_GTID: 4,
    EventType.QUERY: 5,
    EventType.XID: 6,
}
_TREATMENTS = bytes(_TREATMENT.get(code, 0) for code in range(256))

_BETWEEN = cython.declare(cython.int, int(WalkPhase.BETWEEN))
_HEADED = cython.declare(cython.int, int(WalkPhase.HEADED))
_OPEN = cython.declare(cython.int, int(WalkPhase.OPEN))

_ARTIFICIAL = cython.declare(cython.int, FLAG_ARTIFICIAL)
_LARGEST_PACKET = cython.declare(cython.Py_ssize_t, 0xFFFFFF)  # a packet that continues in the next one
_LARGEST_GAP = cython.declare(cython.longlong, event_kinds.LARGEST_GAP)
_LARGEST_NUMBER = cython.declare(cython.ulonglong, 1 << 62)
_WRAP = cython.declare(cython.longlong, event_kinds.WRAP)
# Standalone, DDL, prepared or completed XA: after such a GTID there is no ordinary transaction.
_NOT_ORDINARY = cython.declare(cython.int, 0xFF & ~(2 | 4 | 8 | 16))


def scan(
    buffer: bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t, walk: WalkState, limits: ScanLimits
) -> ScanResult | None:
    """Scan the ordinary events in the packets of ``buffer`` from ``start`` to ``end``; None if the first one is not.

    Moves the events within the scanned part of ``buffer``. Ends before a packet that is not ordinary or not complete,
    before an event after which a large group must be marked, and after a group where the index needs an entry.
    """
    data: cython.p_uchar = buffer
    table: cython.p_uchar = _TREATMENTS
    state: cython.int = walk.phase
    byte: cython.longlong = walk.byte
    here: cython.longlong = walk.pos
    start_pos: cython.longlong = walk.start_pos
    group_start: cython.longlong = walk.group_start
    last_mark: cython.longlong = walk.last_mark
    events: cython.longlong = walk.events
    head: GroupHead | None = walk.head
    may_end: cython.bint = head is not None
    tail: cython.Py_ssize_t = 4 if limits.checksum else 0
    spacing: cython.longlong = limits.spacing
    last_entry: cython.longlong = limits.last_entry
    limit: cython.longlong = limits.limit
    limit_pos: cython.longlong = limits.limit_pos
    sure: cython.bint = limits.sure
    by_gtid: cython.bint = limits.by_gtid
    gap_server: bytes = b"" if limits.gap is None else limits.gap.server
    gap_first: cython.ulonglong = 0 if limits.gap is None else limits.gap.first
    gap_end: cython.ulonglong = 0 if limits.gap is None else min(limits.gap.end, 1 << 62)

    # The GTID of the current group, if its GTID event was scanned in this call (otherwise ``head`` has it).
    code: cython.int = 0
    ids_at: cython.Py_ssize_t = 0
    number: cython.ulonglong = 0
    domain: cython.ulonglong = 0
    micros: cython.ulonglong = 0
    # The GTIDs of the groups that ended: those in ``gtids``, and a run of GTIDs that may continue.
    gtids: list[str] = []
    run_code: cython.int = 0
    run_ids_at: cython.Py_ssize_t = 0
    run_domain: cython.ulonglong = 0
    run_first: cython.ulonglong = 0
    run_last: cython.ulonglong = 0
    anonymous: cython.bint = False
    ended: cython.bint = False
    due: cython.bint = False
    end_byte: cython.longlong = 0
    end_pos: cython.longlong = 0
    end_timestamp: cython.Py_ssize_t = 0
    end_time: cython.double = 0.0

    at: cython.Py_ssize_t = start
    first: cython.Py_ssize_t = start + 5
    last: cython.Py_ssize_t = first
    event: cython.Py_ssize_t
    size: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    body: cython.Py_ssize_t
    log_pos: cython.longlong
    pos: cython.longlong
    gap: cython.longlong
    kind: cython.int
    found: cython.ulonglong

    while end - at >= 24 + tail and not due:
        size = (data[at] | data[at + 1] << 8 | data[at + 2] << 16) - 1
        if size + 1 == _LARGEST_PACKET or size < 19 + tail or size > end - at - 5 or data[at + 4] != 0:
            break
        event = at + 5
        kind = table[data[event + 4]]
        log_pos = event_end(data, event)
        if kind == 0 or event_size(data, event) != size or log_pos == 0 or data[event + 17] & _ARTIFICIAL:
            break
        pos = here - here % _WRAP + log_pos
        if pos < here:
            pos += _WRAP
        gap = pos - size - here
        if gap < 0 or gap > _LARGEST_GAP:
            break
        stop = event + size - tail
        body = event + 19
        if kind == _ROWS:
            if state != _OPEN or byte + size - last_mark >= spacing:
                break
        elif kind == _XID:
            if state != _OPEN or not may_end:
                break
        elif kind == _QUERY:
            if state != _HEADED or byte + size - last_mark >= spacing or stop - body < 13:
                break
            body += 13 + (data[body + 11] | data[body + 12] << 8) + data[body + 8] + 1
            if stop - body != 5 or not _is_begin(data, body):
                break
        elif state != _BETWEEN or not sure or byte >= limit or pos - size >= limit_pos or size >= spacing:
            break
        elif kind == _MARIADB_GTID:
            if stop - body < 13 or data[body + 12] & _NOT_ORDINARY or u64(data, body) >= _LARGEST_NUMBER:
                break
        elif kind == _GTID:
            if stop - body < 25:
                break
            found = u64(data, body + 17)
            if found == 0 or found >= _LARGEST_NUMBER:
                break
            if by_gtid and not (gap_first <= found < gap_end and _same(data, body + 1, gap_server)):
                break
        elif by_gtid:
            break
        if tail and _CRC.of_part(buffer, data, event, stop) != u32(data, stop):
            break

        if last != event:
            if cython.compiled:
                memmove(data + last, data + event, size)  # type: ignore[name-defined]  # noqa: F821
            else:
                buffer[last : last + size] = buffer[event : event + size]
        event = last
        last += size
        at += size + 5
        if state == _BETWEEN:
            group_start = last_mark = byte
            events = 0
            start_pos = pos - size
        byte += size
        here = pos
        events += 1
        body = event + 19
        if kind == _ROWS:
            continue
        if kind == _QUERY:
            state = _OPEN
        elif kind == _XID:
            if head is not None:
                anonymous = anonymous or head.anonymous
                if head.gtid and not head.anonymous:
                    gtids.append(head.gtid)
                end_time = head.exact_time
                head = None
            else:
                end_time = micros / 1e6
                if code == _ANONYMOUS:
                    anonymous = True
                elif (
                    code == run_code
                    and domain == run_domain
                    and (number == run_last + 1 or (code == _MARIADB_GTID and number > run_last))
                    and _equal(data, ids_at, run_ids_at, 4 if code == _MARIADB_GTID else 16)
                ):
                    run_last = number
                else:
                    if run_code != 0:
                        gtids.append(_text(buffer, run_code, run_ids_at, run_domain, run_first, run_last))
                    run_code, run_ids_at, run_domain = code, ids_at, domain
                    run_first = run_last = number
            state = _BETWEEN
            may_end = False
            ended = True
            end_byte = byte
            end_pos = pos
            end_timestamp = u32(data, event)
            due = byte - last_entry >= spacing
        else:
            code = kind
            may_end = True
            number = domain = micros = 0
            if kind == _MARIADB_GTID:
                ids_at = event + 5  # the server's id is in the header
                number = u64(data, body)
                domain = u32(data, body + 8)
                state = _OPEN
            else:
                state = _HEADED
                if size >= 19 + 42 + 7 + 4:
                    micros = u64(data, body + 41) >> 8 & ((1 << 55) - 1)
                if kind == _GTID:
                    ids_at = body + 1
                    number = u64(data, body + 17)
                    gap_first = number + 1
    if at == start:
        return None
    if run_code != 0:
        gtids.append(_text(buffer, run_code, run_ids_at, run_domain, run_first, run_last))
    if may_end and head is None:
        text = "" if code == _ANONYMOUS else _text(buffer, code, ids_at, domain, number, number)
        head = GroupHead(text, code == _ANONYMOUS, micros / 1e6)
    return ScanResult(
        at,
        first,
        last,
        WalkState(WalkPhase(state), byte, here, start_pos, group_start, last_mark, events, head),
        GroupEnd(end_byte, end_pos, end_timestamp, end_time) if ended else None,
        tuple(gtids),
        anonymous,
        due,
    )


@cython.cfunc
def _text(
    buffer: bytearray,
    code: cython.int,
    ids_at: cython.Py_ssize_t,
    domain: cython.ulonglong,
    first: cython.ulonglong,
    last: cython.ulonglong,
) -> str:
    """The text of a run of GTIDs; see ScanResult."""
    if code == _MARIADB_GTID:
        return f"{domain}-{int.from_bytes(buffer[ids_at : ids_at + 4], 'little')}-{last}"
    server = uuid.UUID(bytes=bytes(buffer[ids_at : ids_at + 16]))
    return f"{server}:{first}" if first == last else f"{server}:{first}-{last}"


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _equal(
    data: cython.p_uchar, one: cython.Py_ssize_t, other: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.bint:
    at: cython.Py_ssize_t
    for at in range(size):  # noqa: SIM110
        if data[one + at] != data[other + at]:
            return False
    return True


@cython.cfunc
@cython.inline
def _same(data: cython.p_uchar, start: cython.Py_ssize_t, wanted: bytes) -> cython.bint:
    """Whether the server of a MySQL GTID is ``wanted``."""
    at: cython.Py_ssize_t
    for at in range(16):  # noqa: SIM110
        if data[start + at] != wanted[at]:
            return False
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_begin(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.bint:
    return (
        data[at] == 0x42
        and data[at + 1] == 0x45
        and data[at + 2] == 0x47
        and data[at + 3] == 0x49
        and data[at + 4] == 0x4E
    )
