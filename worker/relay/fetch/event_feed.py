"""Checks each event of a dump before it is stored or decoded, and fills in the positions that MariaDB omits. Pure.

From MariaDB 11.4 on the events of a transaction have `log_pos` 0 in the binlog, unless `binlog_legacy_event_pos` is ON:
the server computes their checksums before it knows their place in the file. The GTID event before them has its
position, and a replica adds the sizes (MariaDB Server Documentation, "Replication and Binary Log System Variables",
binlog_legacy_event_pos). The relay log has the events as an older server writes them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.event_kinds import HEARTBEATS, LARGEST_GAP, MADE_UP, WRAP
from shardmerge.worker.binlog.events import (
    CHECKSUM_SIZE,
    FLAG_ARTIFICIAL,
    HEADER,
    HEADER_SIZE,
    EventType,
    FormatDescription,
    checksum_matches,
    event_name,
)
from shardmerge.worker.core.mysql.target_dialect import parse_version
from shardmerge.worker.core.position import SourcePosition

_OMITS_FROM = (11, 4, 0)
_LOG_POS_AT = 13
_U32 = struct.Struct("<I")
_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_SPECIAL = frozenset({_FORMAT_DESCRIPTION, *HEARTBEATS, *MADE_UP})

Checked = tuple[memoryview, int, int, int, int, bool]
"""The event, its type, size, log_pos and timestamp, and whether it is no event of a group or between groups: a format
description, or one that the dump thread made, which is in no file. A tuple: made once per event of the stream."""


class EventFeed:
    """The checks of one source's dumps. ``here``: returns the position after the last event, for messages.

    ``description``: of the events that come; None before the first one. ``has_checksum``: they end with a CRC32.
    """

    def __init__(self, source: str, here: Callable[[], SourcePosition]) -> None:
        self._source, self._here = source, here
        self.description: FormatDescription | None = None
        self.has_checksum = self._omits_positions = False

    def check(self, event: memoryview, before: int) -> Checked:
        """Check the next event. ``before``: the byte of the source's file at which it begins.

        Raises BAD_PACKET, EVENT_CHECKSUM, and decode.MALFORMED_EVENT for a format description.
        """
        if len(event) < HEADER_SIZE:
            raise self.garbled(f"an event of {len(event)} bytes")
        timestamp, kind, _, size, log_pos, flags = HEADER.unpack_from(event)
        if size != len(event):
            raise self.garbled(f"an event of {size} bytes came as {len(event)}")
        is_artificial = flags & FLAG_ARTIFICIAL
        if kind in _SPECIAL:
            if kind == _FORMAT_DESCRIPTION:
                self._describe(bytes(event))
                return event, kind, size, log_pos, timestamp, True
            if is_artificial or log_pos == 0 or kind in HEARTBEATS:
                return event, kind, size, log_pos, timestamp, True
        # An event may end where log_pos wraps to 0.
        omitted = log_pos == 0 and -before % WRAP - size not in range(LARGEST_GAP)
        if is_artificial or (omitted and not self._omits_positions):
            # Dump threads do not make such an event: it may contain rows.
            raise self.garbled(f"an event of type {event_name(kind)} is marked as not being in any file")
        if self.description is None:
            raise self.garbled("an event before the format description")
        if self.has_checksum and zlib.crc32(event[:-CHECKSUM_SIZE]) != _U32.unpack_from(event, size - CHECKSUM_SIZE)[0]:
            raise self._damaged(kind, size)
        if omitted:
            event, log_pos = with_position(event, before, checksum=self.has_checksum)
        return event, kind, size, log_pos, timestamp, False

    def garbled(self, reason: str) -> ShardmergeError:
        return errors.relay.BAD_PACKET(source=self._source, position=self._here(), reason=reason)

    def _damaged(self, kind: int, size: int) -> ShardmergeError:
        return errors.relay.EVENT_CHECKSUM(source=self._source, position=self._here(), type=event_name(kind), size=size)

    def _describe(self, event: bytes) -> None:
        description = FormatDescription.parse(event, self._source)
        if description.checksum and not checksum_matches(event):
            raise self._damaged(_FORMAT_DESCRIPTION, len(event))
        self.description, self.has_checksum = description, description.checksum
        self._omits_positions = omits_positions(description)


def omits_positions(description: FormatDescription) -> bool:
    """Whether the server that wrote the file may omit positions."""
    return description.is_mariadb and parse_version(description.server_version) >= _OMITS_FROM


def with_position(event: memoryview, before: int, *, checksum: bool) -> tuple[memoryview, int]:
    """The event as it would be with its position, and this ``log_pos``. ``before``: the byte of the source's file at
    which it begins. ``checksum``: it ends with a CRC32."""
    end = (before + len(event)) % WRAP
    made = bytearray(event)
    _U32.pack_into(made, _LOG_POS_AT, end)
    if checksum:
        _U32.pack_into(made, len(made) - CHECKSUM_SIZE, zlib.crc32(memoryview(made)[:-CHECKSUM_SIZE]))
    return memoryview(made), end
