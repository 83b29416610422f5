"""Fills in the positions that MariaDB omits from the events of a transaction.

From 11.4 on the events of a transaction have `log_pos` 0 in the binlog, unless `binlog_legacy_event_pos` is ON: the
server computes their checksums before it knows their place in the file. The GTID event before them has its position,
and a replica adds the sizes (MariaDB Server Documentation, "Replication and Binary Log System Variables",
binlog_legacy_event_pos). The relay log has the events as an older server writes them.
"""

from __future__ import annotations

import struct
import zlib

from shardmerge.worker.binlog.events import CHECKSUM_SIZE, FormatDescription
from shardmerge.worker.core.mysql.target_dialect import parse_version

_FIRST_VERSION = (11, 4, 0)
_LOG_POS = struct.Struct("<I")
_LOG_POS_AT = 13
_CRC = struct.Struct("<I")
_WRAP = 1 << 32


def omits_positions(description: FormatDescription) -> bool:
    """Whether the server that wrote the file may omit positions."""
    return description.is_mariadb and parse_version(description.server_version) >= _FIRST_VERSION


def with_position(event: memoryview, before: int, *, checksum: bool) -> tuple[memoryview, int]:
    """The event as it would be with its position, and this ``log_pos``. ``before``: the byte of the source's file at
    which it begins. ``checksum``: it ends with a CRC32."""
    end = (before + len(event)) % _WRAP
    made = bytearray(event)
    _LOG_POS.pack_into(made, _LOG_POS_AT, end)
    if checksum:
        body = memoryview(made)[:-CHECKSUM_SIZE]
        _CRC.pack_into(made, len(made) - CHECKSUM_SIZE, zlib.crc32(body))
    return memoryview(made), end
