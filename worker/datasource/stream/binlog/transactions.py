"""The transactions of a block: position, GTID and commit time of each, from the events that begin them.

Formats: MySQL's libs/mysql/binlog/event/control_events.h (Gtid_event), MariaDB's sql/log_event.h (Gtid_log_event).
"""

from __future__ import annotations

import struct
import uuid
from functools import lru_cache
from typing import NamedTuple

from shardmerge.worker.binlog.commit_time import exact_time
from shardmerge.worker.binlog.event_kinds import WRAP
from shardmerge.worker.binlog.events import HEADER, HEADER_SIZE, EventType
from shardmerge.worker.binlog.gtid_events import parse_gtid
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.datasource.stream.binlog.group_starts import group_starts

_MARIADB = struct.Struct("<QI")
_MYSQL = struct.Struct("<16sQ")
_MILLION = 1_000_000


class Transaction(NamedTuple):
    """A NamedTuple: made once per transaction of the stream.

    ``at``: byte of the block at which its events begin. ``begin``: byte of the file. ``gtid``: "" for none.
    ``commit_micros``: since 1970.
    """

    at: int
    begin: int
    gtid: str
    commit_micros: int


def transactions_of(events: bytes, begin: SourcePosition, checksum: bool, source: str) -> list[Transaction]:
    """The transactions that begin in a block's events, which the decoder has verified. ``begin``: of the block."""
    found: list[Transaction] = []
    high = begin.pos - begin.pos % WRAP
    low = begin.pos % WRAP
    for at in group_starts(events):
        timestamp, kind, server, size, log_pos, _ = HEADER.unpack_from(events, at)
        if log_pos < low:
            high += WRAP
        low = log_pos
        gtid = ""
        micros = timestamp * _MILLION
        if kind == EventType.MARIADB_GTID:
            number, domain = _MARIADB.unpack_from(events, at + HEADER_SIZE)
            gtid = f"{domain}-{server}-{number}"
        elif kind != EventType.QUERY:
            event = events[at : at + size]
            micros = round(exact_time(event) * _MILLION) or micros
            if kind == EventType.GTID:
                server_uuid, number = _MYSQL.unpack_from(event, HEADER_SIZE + 1)
                gtid = f"{_text(server_uuid)}:{number}"
            else:
                gtid = parse_gtid(event, checksum, source).text
        found.append(Transaction(at, high + log_pos - size, gtid, micros))
    return found


@lru_cache(maxsize=1024)
def _text(server: bytes) -> str:
    return str(uuid.UUID(bytes=server))
