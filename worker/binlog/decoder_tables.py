"""Tables by event type for the decoder, and its functions for rare events: those that are refused or compressed."""

from __future__ import annotations

from shardmerge.proto import errors
from shardmerge.worker.binlog.events import EventType, event_name
from shardmerge.worker.binlog.rows.image_scanner import BadImage
from shardmerge.worker.binlog.rows.table_map import TableMap
from shardmerge.worker.core.inflation import inflate
from shardmerge.worker.core.row_change import ChangeKind

_T = EventType
_TREATMENT: dict[int, int] = {
    **dict.fromkeys(
        (_T.STOP, _T.ROTATE, _T.INTVAR, _T.SLAVE, _T.RAND, _T.USER_VAR, _T.HEARTBEAT, _T.HEARTBEAT_V2, _T.IGNORABLE,
         _T.ROWS_QUERY, _T.PREVIOUS_GTIDS, _T.TRANSACTION_CONTEXT, _T.VIEW_CHANGE, _T.ANNOTATE_ROWS,
         _T.BINLOG_CHECKPOINT, _T.MARIADB_GTID_LIST), 1),
    _T.TABLE_MAP: 2,
    **dict.fromkeys(
        (_T.WRITE_ROWS_V1, _T.UPDATE_ROWS_V1, _T.DELETE_ROWS_V1, _T.WRITE_ROWS_V2, _T.UPDATE_ROWS_V2,
         _T.DELETE_ROWS_V2, _T.WRITE_ROWS_COMPRESSED_V1, _T.UPDATE_ROWS_COMPRESSED_V1, _T.DELETE_ROWS_COMPRESSED_V1,
         _T.WRITE_ROWS_COMPRESSED, _T.UPDATE_ROWS_COMPRESSED, _T.DELETE_ROWS_COMPRESSED, _T.PARTIAL_UPDATE_ROWS), 3),
    _T.QUERY: 4,
    _T.QUERY_COMPRESSED: 4,
    **dict.fromkeys((_T.GTID, _T.ANONYMOUS_GTID, _T.GTID_TAGGED, _T.MARIADB_GTID, _T.XID), 5),
    _T.XA_PREPARE: 7,
    _T.FORMAT_DESCRIPTION: 8,
}  # fmt: skip

TREATMENTS = bytes([_TREATMENT.get(code, 0) for code in range(256)])
"""The treatment of each event type; the numbers are constants of worker/binlog/decoder.py, 0: unsupported."""

KINDS = bytes([
    int(ChangeKind.INSERT) if code in (_T.WRITE_ROWS_V1, _T.WRITE_ROWS_V2, _T.WRITE_ROWS_COMPRESSED_V1,
                                       _T.WRITE_ROWS_COMPRESSED)
    else int(ChangeKind.UPDATE) if code in (_T.UPDATE_ROWS_V1, _T.UPDATE_ROWS_V2, _T.UPDATE_ROWS_COMPRESSED_V1,
                                            _T.UPDATE_ROWS_COMPRESSED, _T.PARTIAL_UPDATE_ROWS)
    else int(ChangeKind.DELETE)
    for code in range(256)
])  # fmt: skip
"""ChangeKind of rows events by their type."""
WITH_EXTRA = bytes([
    code in (_T.WRITE_ROWS_V2, _T.UPDATE_ROWS_V2, _T.DELETE_ROWS_V2, _T.WRITE_ROWS_COMPRESSED,
             _T.UPDATE_ROWS_COMPRESSED, _T.DELETE_ROWS_COMPRESSED, _T.PARTIAL_UPDATE_ROWS)
    for code in range(256)
])  # fmt: skip
"""1 for rows events whose header has extra data."""

WAYS_OUT: dict[int, str] = {
    _T.TRANSACTION_PAYLOAD: "Set binlog_transaction_compression=OFF at the source.",
    _T.START_ENCRYPTION: "Fetch the binlog from the server: its dump is not encrypted. Stop the worker, move the relay "
    "directory away, start the worker, and resume-task. Keep the directory until the task has caught up.",
    _T.INCIDENT: "The source reports that its binlog lacks changes here.",
    _T.EXECUTE_LOAD_QUERY: "Set binlog_format=ROW at the source (LOAD DATA was logged as a statement).",
}
"""Advice to the user about unsupported event types."""


TRANSACTIONAL = frozenset({"innodb", "rocksdb", "tokudb", "ndbcluster"})
"""Engines, in lower case, whose changes a ROLLBACK takes back."""
ID_BYTES = {6: 4, 8: 6, 10: 6}
"""Bytes of the table id in table maps and rows events, by their post-header length: old servers wrote 4."""


def unsupported_event(source: str, code: int, position: int, reason: str) -> errors.ShardmergeError:
    """The error for an event of a type that the decoder cannot skip."""
    way_out = WAYS_OUT.get(
        code, "Use a server version and settings this version knows (binlog_format=ROW), or leave this out of the "
        "binlog."
    )  # fmt: skip
    return errors.decode.UNSUPPORTED_EVENT(
        source=source, event=event_name(code), position=position, reason=reason, way_out=way_out
    )


def rows_filtered(source: str, table: TableMap, code: int, position: int) -> errors.ShardmergeError:
    """The error for rows at which an event filter with the action Error stops."""
    return errors.replicate.ROWS_FILTERED(
        source=source,
        schema=table.schema,
        table=table.table,
        event=ChangeKind(KINDS[code]).name.lower(),
        position=position,
    )


def uncompressed_rows(events: bytes, at: int, end: int, code: int, position: int, source: str) -> bytes:
    """A compressed rows event's column count and bitmaps, followed by the uncompressed images. Raises BadImage,
    MALFORMED_EVENT and INFLATED_EVENT_TOO_LARGE."""
    part = memoryview(events)[at:end]
    if not part:
        raise BadImage("a rows event without columns")
    count, head = (part[0], 1) if part[0] < 251 else (int.from_bytes(part[1:3], "little"), 3)
    head += (count + 7) // 8 * (2 if KINDS[code] == ChangeKind.UPDATE else 1)
    return inflate(part[head:], source, position, bytes(part[:head]))
