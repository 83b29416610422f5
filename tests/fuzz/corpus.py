"""What is damaged: events of real servers, and made-up ones of the kinds that those files lack."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.table_plan import PartitionId, TablePlan
from tests.support.all_types import TABLE
from tests.support.binlog import (
    Binlog,
    as_compressed,
    as_version_2,
    forge,
    plan_of,
    query,
    read_binlog,
    without_checksums,
)
from tests.support.capture import DATA, KEPT, kept

_MADE_UP: dict[EventType, tuple[bytes, ...]] = {
    EventType.STOP: (b"",),
    EventType.ROTATE: (struct.pack("<Q", 4) + b"mysql-bin.000002",),
    EventType.INTVAR: (b"\2" + bytes(8),),
    EventType.RAND: (bytes(16),),
    EventType.USER_VAR: (struct.pack("<I", 1) + b"v\0\2" + struct.pack("<IIQ", 8, 8, 1),),
    EventType.XID: (bytes(8),),
    EventType.XA_PREPARE: (b"\0" + struct.pack("<III", 1, 1, 1) + b"ab", b"\1" + struct.pack("<III", 1, 1, 1) + b"ab"),
    EventType.INCIDENT: (b"\1\0\4lost",),
    EventType.HEARTBEAT: (b"mysql-bin.000002",),
    EventType.HEARTBEAT_V2: (b"\1\x10mysql-bin.000002\2\1\4\0",),
    EventType.IGNORABLE: (b"\3abc",),
    EventType.ROWS_QUERY: (b"\x06INSERT",),
    EventType.GTID: (b"\1" + bytes(range(16)) + struct.pack("<QB", 7, 2) + bytes(16),),
    EventType.ANONYMOUS_GTID: (b"\1" + bytes(16) + struct.pack("<QB", 0, 2) + bytes(16),),
    EventType.PREVIOUS_GTIDS: (struct.pack("<Q", 1) + bytes(range(16)) + struct.pack("<QQQ", 1, 1, 9),),
    EventType.TRANSACTION_CONTEXT: (bytes(30),),
    EventType.VIEW_CHANGE: (bytes(52),),
    EventType.TRANSACTION_PAYLOAD: (b"\2\1\0\3\1\x20\1\1\x1e\0" + b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00",),
    EventType.GTID_TAGGED: (bytes(40),),
    EventType.START_ENCRYPTION: (b"\1" + bytes(4) + bytes(12),),
    EventType.ANNOTATE_ROWS: (b"INSERT INTO t VALUES (1)",),
    EventType.BINLOG_CHECKPOINT: (struct.pack("<I", 16) + b"mysql-bin.000002",),
    EventType.MARIADB_GTID: (struct.pack("<QIB", 1, 0, 0) + bytes(6), struct.pack("<QIB", 1, 0, 1)),
    EventType.MARIADB_GTID_LIST: (struct.pack("<I", 1) + struct.pack("<IIQ", 0, 1, 5),),
    EventType.BEGIN_LOAD_QUERY: (struct.pack("<I", 1) + b"1\t2\n",),
    EventType.APPEND_BLOCK: (struct.pack("<I", 1) + b"3\t4\n",),
    EventType.DELETE_FILE: (struct.pack("<I", 1),),
    EventType.EXECUTE_LOAD_QUERY: (bytes(50),),
    EventType.QUERY_COMPRESSED: (
        struct.pack("<IIBHH", 7, 0, 1, 0, 0) + b"d\0\x81\5" + b"x\x9cstuvu\xf7\x03\x00\x05\xf4\x01\x77",
    ),
}
_ROWS = frozenset(code for code in EventType if "_ROWS" in code.name and code not in (
    EventType.ANNOTATE_ROWS, EventType.ROWS_QUERY))  # fmt: skip
_QUERIES = (b"BEGIN", b"COMMIT", b"ROLLBACK", b"ROLLBACK TO x", b"SAVEPOINT x", b"ALTER TABLE d.random ADD x INT",
            b" rollback", b"XA START X'61',X'',1")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """Events of one file. ``maps``: for each event the place of the table map before it, -1 without.

    ``rows``: the places of rows events.
    """

    name: str
    format_description: bytes
    events: tuple[bytes, ...]
    maps: tuple[int, ...]
    rows: tuple[int, ...]
    plan: TablePlan
    checksum: bool


def _source(name: str, binlog: Binlog, plan: TablePlan, checksum: bool = True) -> Source:
    events = list(binlog.each())
    maps: list[int] = []
    last = -1
    for place, event in enumerate(events):
        if event[4] == EventType.TABLE_MAP:
            last = place
        maps.append(last)
    for event in _made_up(checksum):
        events.append(event)
        maps.append(last)
    rows = tuple(place for place, event in enumerate(events) if event[4] in _ROWS)
    return Source(name, binlog.format_description, tuple(events), tuple(maps), rows, plan, checksum)


def _made_up(checksum: bool) -> Iterator[bytes]:
    for code, bodies in _MADE_UP.items():
        for body in bodies:
            yield forge(code, body, checksum=checksum)
    for statement in _QUERIES:
        yield query(statement, checksum=checksum)


@cache
def sources() -> tuple[Source, ...]:
    """Events of MariaDB (plain, compressed, as version 2, without checksums) and of MySQL (JSON in parts)."""
    edges = read_binlog(Path(DATA) / "mariadb-10.11.binlog")
    bare = without_checksums(edges)
    found = [
        _source("edges", edges, plan_of(TABLE, {"bi": PartitionId(5 << 44, 44)})),
        _source("edges without checksums", bare, plan_of(TABLE), checksum=False),
    ]
    for flavor in KEPT:
        binlog, plan, _ = kept(flavor)
        found.append(_source(flavor, binlog, plan))
    mariadb, plan, _ = kept("mariadb")
    found.append(_source("version 2", mariadb.of(as_version_2(event, b"x") for event in mariadb.each()), plan))
    found.append(_source("compressed", edges.of(map(as_compressed, edges.each())), plan_of(TABLE)))
    packed = edges.of(as_compressed(as_version_2(event, b"x")) for event in edges.each())
    found.append(_source("version 2 compressed", packed, plan_of(TABLE)))
    return tuple(found)


def kinds() -> frozenset[int]:
    """The types of all events."""
    return frozenset(event[4] for source in sources() for event in source.events)
