"""Reads, changes and makes binlog files and events for tests."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import ColumnPlan, Mapping, TablePlan

_HEADER = struct.Struct("<IBIIIH")
_TO_V2 = {
    EventType.WRITE_ROWS_V1: EventType.WRITE_ROWS_V2,
    EventType.UPDATE_ROWS_V1: EventType.UPDATE_ROWS_V2,
    EventType.DELETE_ROWS_V1: EventType.DELETE_ROWS_V2,
}


@dataclass(frozen=True, slots=True)
class Binlog:
    """A binlog file: its format description, and the bytes of all events after it."""

    format_description: bytes
    events: bytes

    def each(self) -> list[bytes]:
        return list(split(self.events))

    def of(self, events: Iterable[bytes]) -> Binlog:
        """The same file with other events."""
        return replace(self, events=b"".join(events))


def read_binlog(path: Path) -> Binlog:
    """Read a file of a server's data directory, or a stored one."""
    data = path.read_bytes()
    assert data[:4] == b"\xfebin"
    first = data[4 : 4 + struct.unpack_from("<I", data, 13)[0]]
    return Binlog(first, data[4 + len(first) :])


def split(events: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(events):
        (size,) = struct.unpack_from("<I", events, at + 9)
        yield events[at : at + size]
        at += size


def forge(code: int, body: bytes, *, checksum: bool = True, log_pos: int = 1000, flags: int = 0) -> bytes:
    """Return an event of server 1, with its checksum."""
    size = 19 + len(body) + (4 if checksum else 0)
    event = _HEADER.pack(1_700_000_000, code, 1, size, log_pos, flags) + body
    return event + struct.pack("<I", zlib.crc32(event)) if checksum else event


def body_of(event: bytes, checksum: bool = True) -> bytes:
    return event[19:-4] if checksum else event[19:]


def query(statement: bytes, schema: bytes = b"d", *, checksum: bool = True) -> bytes:
    """Return a QUERY event without status variables."""
    body = struct.pack("<IIBHH", 7, 0, len(schema), 0, 0) + schema + b"\0" + statement
    return forge(EventType.QUERY, body, checksum=checksum)


def without_checksums(binlog: Binlog) -> Binlog:
    """Return the file as the server writes it with binlog_checksum=NONE."""
    body = bytearray(body_of(binlog.format_description))
    body[-1] = 0
    events = (forge(event[4], body_of(event), checksum=False) for event in binlog.each())
    return Binlog(forge(EventType.FORMAT_DESCRIPTION, bytes(body)), b"".join(events))


_TO_COMPRESSED = {
    EventType.WRITE_ROWS_V1: EventType.WRITE_ROWS_COMPRESSED_V1,
    EventType.UPDATE_ROWS_V1: EventType.UPDATE_ROWS_COMPRESSED_V1,
    EventType.DELETE_ROWS_V1: EventType.DELETE_ROWS_COMPRESSED_V1,
    EventType.WRITE_ROWS_V2: EventType.WRITE_ROWS_COMPRESSED,
    EventType.UPDATE_ROWS_V2: EventType.UPDATE_ROWS_COMPRESSED,
    EventType.DELETE_ROWS_V2: EventType.DELETE_ROWS_COMPRESSED,
}


def as_version_2(event: bytes, extra: bytes = b"") -> bytes:
    """Return a rows event of version 1 as MySQL writes it since 5.6, with (empty) extra data; other events
    unchanged."""
    code = _TO_V2.get(EventType(event[4]))
    if code is None:
        return event
    body = body_of(event)
    return forge(code, body[:8] + struct.pack("<H", 2 + len(extra)) + extra + body[8:])


def as_compressed(event: bytes) -> bytes:
    """Return a rows event of version 1 or 2 as MariaDB writes it with log_bin_compress=ON; other events unchanged.

    Column count and bitmaps are not compressed (sql/log_event_server.cc, Rows_log_event::write_compressed).
    """
    code = _TO_COMPRESSED.get(EventType(event[4]))
    if code is None:
        return event
    body = body_of(event)
    at = 8
    if code in (EventType.WRITE_ROWS_COMPRESSED, EventType.UPDATE_ROWS_COMPRESSED, EventType.DELETE_ROWS_COMPRESSED):
        at += struct.unpack_from("<H", body, at)[0]
    columns, count_bytes = (body[at], 1) if body[at] < 251 else (struct.unpack_from("<H", body, at + 1)[0], 3)
    at += count_bytes + (columns + 7) // 8 * (2 if "UPDATE" in code.name else 1)
    rows = body[at:]
    packed = b"\x84" + struct.pack(">I", len(rows)) + zlib.compress(rows)
    return forge(code, body[:at] + packed)


def plan_of(table: Table, mappings: dict[str, Mapping] | None = None, leave_out: str = "") -> TablePlan:
    """Return a plan that writes every column that a server lets clients write."""
    columns = tuple(
        ColumnPlan(index, column, column.name, (mappings or {}).get(column.name))
        for index, column in enumerate(table.columns)
        if not column.generated and column.name != leave_out
    )
    places = {column.index: slot for slot, column in enumerate(columns)}
    return TablePlan(0, "s1", table, "t", "merged", columns, tuple(places[index] for index in table.key))


def only(plan: TablePlan) -> Callable[[str, str], TablePlan | None]:
    """A resolver that knows one table."""
    return lambda schema, table: plan if (schema, table) == (plan.table.schema, plan.table.name) else None


def row_of(change: RowChange) -> tuple[object, ...]:
    """Return all of a change but its position: kind, plan, images, source keys."""
    return (
        change.kind,
        change.plan,
        change.before,
        change.after,
        change.source_key_before,
        change.source_key_after,
    )
