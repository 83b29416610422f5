"""Where event groups end, for the shapes that servers write."""

from __future__ import annotations

import struct
import zlib
from uuid import UUID

import pytest

from shardmerge.worker.binlog.events import EventType as T
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.log.group_walker import GroupWalker
from shardmerge.worker.relay.model import Head
from tests.support.made_source import MadeSource, event, query_body
from tests.support.serialized import tagged_gtid

MARIADB_GTID = struct.Struct("<QIB6x")
Shape = list[tuple[int, bytes]]


def gtid(flags: int = 0) -> tuple[int, bytes]:
    return T.MARIADB_GTID, MARIADB_GTID.pack(1, 0, flags)


def query(text: bytes) -> tuple[int, bytes]:
    return T.QUERY, query_body(text)


def load_query(text: bytes) -> tuple[int, bytes]:
    body = query_body(text)
    return T.EXECUTE_LOAD_QUERY, body[:13] + bytes(13) + body[13:]


def compressed_query(text: bytes) -> tuple[int, bytes]:
    packed = bytes([0x81, len(text)]) + zlib.compress(text)
    return T.QUERY_COMPRESSED, query_body(packed)


MYSQL_GTID = (T.GTID, bytes([1]) + bytes(16) + struct.pack("<Q", 9) + bytes(17))
ANONYMOUS = (T.ANONYMOUS_GTID, bytes(42))
XA_START, XA_END = query(b"XA START X'31',X'',1"), query(b"XA END X'31',X'',1")
XA_PREPARE = (T.XA_PREPARE, bytes(13))
LOAD = (T.BEGIN_LOAD_QUERY, bytes(9))
ROWS = (T.WRITE_ROWS_V2, bytes(9))
MAP = (T.TABLE_MAP, bytes(9))
XID = (T.XID, bytes(8))
INTVAR = (T.INTVAR, bytes(9))

SHAPES: dict[str, Shape] = {
    "MariaDB transaction": [gtid(), MAP, ROWS, XID],
    "MariaDB, not transactional": [gtid(), MAP, ROWS, query(b"COMMIT")],
    "MariaDB rolled back": [gtid(), query(b"INSERT INTO t VALUES (1)"), query(b"ROLLBACK")],
    "MariaDB DDL": [gtid(1), query(b"ALTER TABLE t FORCE")],
    "MariaDB DDL with an id": [gtid(1), INTVAR, query(b"ALTER TABLE t FORCE")],
    "MariaDB compressed DDL": [gtid(1), compressed_query(b"ALTER TABLE t FORCE")],
    "MariaDB CREATE SELECT": [gtid(), query(b"CREATE TABLE t (a INT)"), MAP, ROWS, query(b"COMMIT")],
    "MariaDB XA prepared": [gtid(64), XA_START, MAP, ROWS, XA_END, XA_PREPARE],
    "MariaDB XA committed": [gtid(128), query(b"XA COMMIT X'31',X'',1")],
    "savepoints": [gtid(), query(b"SAVEPOINT `a`"), ROWS, query(b"ROLLBACK TO `a`"), XID],
    "MySQL transaction": [MYSQL_GTID, query(b"BEGIN"), MAP, ROWS, XID],
    "MySQL anonymous": [ANONYMOUS, query(b"BEGIN"), MAP, ROWS, query(b"COMMIT")],
    "MySQL tagged": [(T.GTID_TAGGED, tagged_gtid(UUID(int=5), "blue", 3, 1)), query(b"BEGIN"), MAP, ROWS, XID],
    "MySQL DDL": [MYSQL_GTID, query(b"ALTER TABLE t FORCE")],
    "MySQL statement with an id": [MYSQL_GTID, query(b"BEGIN"), INTVAR, query(b"INSERT INTO t VALUES (1)"), XID],
    "MySQL LOAD DATA": [MYSQL_GTID, query(b"BEGIN"), LOAD, load_query(b"LOAD DATA INTO TABLE t"), XID],
    "MySQL payload": [MYSQL_GTID, (T.TRANSACTION_PAYLOAD, bytes(50))],
    "MySQL XA": [MYSQL_GTID, XA_START, ROWS, XA_END, XA_PREPARE],
    "MySQL XA commit": [MYSQL_GTID, query(b"XA COMMIT X'31',X'',1")],
    "incident": [MYSQL_GTID, (T.INCIDENT, bytes(3))],
    "without GTID": [query(b"BEGIN"), ROWS, XID],
    "DDL without GTID": [query(b"ALTER TABLE t FORCE")],
    "stop": [(T.STOP, b"")],
    "checkpoint": [(T.BINLOG_CHECKPOINT, bytes(9))],
    "rotate": [(T.ROTATE, struct.pack("<Q", 4) + b"b.000002")],
}  # fmt: skip

NOTED = {
    "MariaDB rolled back": "INSERT INTO t VALUES (1)",
    "MariaDB DDL": "ALTER TABLE t FORCE",
    "MariaDB DDL with an id": "ALTER TABLE t FORCE",
    "MariaDB compressed DDL": "ALTER TABLE t FORCE",
    "MariaDB CREATE SELECT": "CREATE TABLE t (a INT)",
    "MySQL DDL": "ALTER TABLE t FORCE",
    "MySQL statement with an id": "INSERT INTO t VALUES (1)",
    "MySQL LOAD DATA": "LOAD DATA INTO TABLE t",
    "DDL without GTID": "ALTER TABLE t FORCE",
}


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_a_group_ends_with_its_last_event_and_not_before(name: str, checksum: bool) -> None:
    start = Head(RelayOffset(1, 4), SourcePosition("b.000001", 100), 0.0)
    walker = GroupWalker("s", start, checksum)
    pos = 100
    for _ in range(2):  # the second time from the state the first one left
        ends: list[bool] = []
        for code, body in SHAPES[name]:
            size = 19 + len(body) + 4 * checksum
            made = event(code, body, pos + size, checksum=checksum)
            walker.step(made, code, size, pos + size, 5)
            pos += size
            ends.append(walker.at_group_end)
        assert ends == [False] * (len(ends) - 1) + [True]
        if name == "rotate":
            assert walker.end.position == SourcePosition("b.000002", 4)
            pos = 4
        else:
            assert walker.end.position.pos == pos
        _, statements = walker.drain()
        assert [statement.text for statement in statements] == ([NOTED[name]] if name in NOTED else [])


def test_mysql_has_the_commit_time_in_microseconds() -> None:
    start = Head(RelayOffset(1, 4), SourcePosition("b.000001", 100), 0.0)
    walker = GroupWalker("s", start, checksum=True)
    moment = 1_700_000_000_123_456
    body = bytes([1]) + bytes(16) + struct.pack("<Q", 9) + bytes(17) + moment.to_bytes(7, "little") + bytes(9)
    source = MadeSource(mariadb=False)
    for code, content in ((T.GTID, body), query(b"BEGIN"), ROWS, XID):
        made = source.add(code, content)
        walker.step(made, code, len(made), source.position.pos, 5)
    assert walker.end.commit_time == pytest.approx(moment / 1e6, abs=1e-6)
