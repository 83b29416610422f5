"""Parses the XA (two-phase) transaction that an event of the binlog belongs to.

Formats: MySQL's libs/mysql/binlog/event/control_events.h (XA_prepare_event); both servers write the statements as
``XA COMMIT X'67747269',X'6271',1`` (sql/xa.cc, serialize_xid).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from shardmerge.worker.binlog.events import HEADER_SIZE, body_end, malformed, parse_header

_PREPARE = struct.Struct("<BIII")  # one phase, format id, bytes of the two parts
_LONGEST_PART = 64
_STATEMENT = re.compile(
    rb"\s*XA\s+(START|BEGIN|END|PREPARE|COMMIT|ROLLBACK)\s+X'([0-9a-f]{0,128})',X'([0-9a-f]{0,128})',(\d{1,10})\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Xid:
    """The name of a two-phase transaction; a server has at most one open transaction of a name."""

    form: int
    gtrid: bytes
    bqual: bytes

    def __str__(self) -> str:
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.form}"


@dataclass(frozen=True, slots=True)
class XaPrepare:
    """The end of a group that is prepared, or (``one_phase``) prepared and committed at once."""

    xid: Xid
    one_phase: bool


def parse_xa_prepare(event: bytes, checksum: bool, source: str = "") -> XaPrepare:
    """Parse XA_PREPARE."""
    header = parse_header(event, 0, source)
    end = body_end(event, header, checksum, _PREPARE.size, source)
    one_phase, form, gtrid, bqual = _PREPARE.unpack_from(event, HEADER_SIZE)
    at = HEADER_SIZE + _PREPARE.size
    if max(gtrid, bqual) > _LONGEST_PART or at + gtrid + bqual > end:
        raise malformed(source, header.log_pos, f"XA_PREPARE: parts of {gtrid} and {bqual} bytes")
    xid = Xid(form, event[at : at + gtrid], event[at + gtrid : at + gtrid + bqual])
    return XaPrepare(xid, one_phase != 0)


def is_two_phase(body: bytes, source: str, position: int) -> bool:
    """Whether an XA_PREPARE, from its body without header and checksum, prepares a group that ends later. ``position``:
    of its end at the source. Raises MALFORMED_EVENT."""
    if not body:
        raise malformed(source, position, "XA_PREPARE is too short")
    return body[0] == 0


def xid_of(statement: bytes) -> Xid | None:
    """The transaction that an XA statement of a binlog names; None if it is not in the servers' notation."""
    match = _STATEMENT.fullmatch(statement)
    if match is None:
        return None
    _, gtrid, bqual, form = match.groups()
    if len(gtrid) % 2 or len(bqual) % 2:
        return None
    return Xid(int(form), bytes.fromhex(gtrid.decode()), bytes.fromhex(bqual.decode()))
