"""A source whose binlog is no longer the one that was read; events that are marked as being in no file."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.binlog.events import FLAG_ARTIFICIAL, EventType
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.mysql.server_errors import ErrorKind, kind_of
from tests.support.binlog import split
from tests.support.made_source import TIME, MadeSource, event, query_body
from tests.unit.worker.relay.rig import Rig, bytes_of


@pytest.fixture(params=[True, False], ids=["mariadb", "mysql"])
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(tmp_path, MadeSource(mariadb=bool(request.param)))
    for _ in range(5):
        made.source.transaction(10)
    made.fetch()
    made.disconnect()
    yield made
    made.appender.close()


def feed(rig: Rig, *events: bytes) -> None:
    for made in events:
        rig.appender.feed(memoryview(made))
    rig.appender.flush()


def refused(rig: Rig, *events: bytes, spec: ErrorSpec = errors.relay.SOURCE_LOG_RESET) -> ShardmergeError:
    """What the events are refused with; nothing of them is published."""
    before = rig.log.head()
    with pytest.raises(ShardmergeError) as caught:
        feed(rig, *events)
    assert caught.value.spec is spec, caught.value
    assert rig.log.head() == before
    return caught.value


def rotate(name: str, pos: int, *, flags: int = FLAG_ARTIFICIAL, log_pos: int = 0) -> bytes:
    return event(EventType.ROTATE, struct.pack("<Q", pos) + name.encode(), log_pos, flags=flags)


def made_at(event: bytes, seconds: int) -> bytes:
    body = struct.pack("<I", seconds) + event[4:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def test_a_file_of_the_same_name_that_was_made_later_is_another(rig: Rig) -> None:
    turn, description, *_ = rig.source.dump(rig.connect())
    error = refused(rig, turn, made_at(description, TIME + 2))
    assert not error.spec.retryable
    assert str(rig.log.head().position) in error.message
    assert "mysql-bin.000001 was made at 2023-11-14 22:13:22 UTC" in error.message
    assert "--remove-meta" in error.workaround
    rig.fetch()  # the same file again
    assert bytes_of(rig.served()) == rig.source.committed()


def test_a_dump_begins_where_it_was_asked_to(rig: Rig) -> None:
    at = rig.connect()
    refused(rig, rotate(at.file, at.pos - 10))
    rig.connect()
    refused(rig, rotate("mysql-bin.000002", 4))
    rig.connect()
    feed(rig, rotate(at.file, at.pos))


def test_a_dump_continues_in_later_files_only(rig: Rig) -> None:
    rig.source.rotate()
    rig.source.transaction(10)
    rig.fetch()
    error = refused(rig, rotate("mysql-bin.000001", 4))
    assert str(rig.log.head().position) in error.message
    assert "(mysql-bin.000001, 4)" in error.message
    for pos in (4, rig.source.position.pos - 1, rig.source.position.pos + 1):
        refused(rig, rotate("mysql-bin.000002", pos))
    end = rig.source.position.pos
    refused(rig, rotate("mysql-bin.000001", 4, flags=0, log_pos=end + 47))
    feed(rig, rotate("mysql-bin.000004", 4))


def test_gtids_that_restart_after_a_reconnect_are_refused(rig: Rig) -> None:
    again = MadeSource(mariadb=rig.source.mariadb)
    for _ in range(6):
        again.transaction(10)
    dumped = rig.source.dump(rig.connect())
    made = again.gtid()
    again.sequence = 2
    again.files[-1].events.pop()
    again.files[-1].ends.pop()
    old = again.gtid()
    assert made[19:27] != old[19:27] or not rig.source.mariadb
    behind = event(old[4], old[19:-4], rig.source.position.pos + len(old))
    error = refused(rig, *dumped, behind)
    assert "GTID" in error.message


def test_old_gtids_inside_of_a_file_are_believed(rig: Rig) -> None:
    """A backup that is restored at the source writes its GTIDs again."""
    rig.source.transaction(10)
    rig.source.sequence = 1
    rig.source.transaction(10)
    rig.source.transaction(10)
    rig.fetch()
    assert bytes_of(rig.served()) == rig.source.committed()


def test_a_file_whose_list_of_gtids_goes_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, MadeSource())
    for _ in range(5):
        rig.source.transaction(10)
    rig.fetch()
    rig.disconnect()
    rig.source.sequence = rig.source.written[1] = 3
    rig.source.rotate()
    with pytest.raises(ShardmergeError) as caught:
        rig.fetch()
    assert caught.value.spec is errors.relay.SOURCE_LOG_RESET
    assert "0-1-5" in caught.value.message
    rig.appender.close()


def test_a_large_file_that_is_shorter_when_it_is_read_again(rig: Rig) -> None:
    """Beyond 4 GiB the dump begins at the file's start: what is stored must come by before the next file."""
    rig.source.files[-1].ends[-1] = (1 << 32) - 100
    feed(rig, rig.source.heartbeat())
    rig.source.transaction(300)
    rig.fetch()
    assert rig.connect().pos == 4
    whole = rig.source.files[-1].events
    refused(rig, rotate("mysql-bin.000001", 4), *whole[:6], rotate("mysql-bin.000002", 4))
    rig.source.crash(inside_group=False)
    rig.source.transaction(10)
    rig.disconnect()
    rig.fetch()
    assert bytes_of(rig.served()) == rig.source.committed()


@pytest.mark.parametrize("kind", [EventType.TABLE_MAP, EventType.WRITE_ROWS_V1, EventType.XID, EventType.QUERY])
def test_an_event_in_no_file_is_not_dropped(rig: Rig, kind: EventType) -> None:
    body = query_body(b"COMMIT") if kind is EventType.QUERY else bytes(30)
    rig.source.gtid()
    if not rig.source.mariadb:
        rig.source.query(b"BEGIN")
    rig.fetch()
    end = rig.source.position.pos
    for made in (event(kind, body, 0), event(kind, body, end + 23 + len(body), flags=FLAG_ARTIFICIAL)):
        error = refused(rig, made, spec=errors.relay.BAD_PACKET)
        assert kind.name in error.message
    rig.disconnect()
    rig.source.add(EventType.XID, bytes(8))
    rig.fetch()
    assert bytes_of(rig.served()) == rig.source.committed()


def test_what_a_dump_thread_makes_up_is_left_out(rig: Rig) -> None:
    rig.fetch()
    before = rig.log.head()
    kind = EventType.MARIADB_GTID_LIST if rig.source.mariadb else EventType.PREVIOUS_GTIDS
    feed(
        rig,
        event(kind, bytes(8), rig.source.position.pos, flags=FLAG_ARTIFICIAL),
        event(EventType.HEARTBEAT_V2, bytes(8), 0),
        rig.source.heartbeat(),
    )
    assert rig.log.head() == before


def test_an_event_that_ends_at_four_gib_is_stored(rig: Rig) -> None:
    rig.fetch()
    file = rig.source.files[-1]
    probe = MadeSource(mariadb=rig.source.mariadb)
    start = probe.position.pos
    probe.transaction(10)
    file.ends[-1] = (1 << 32) - (probe.position.pos - start)
    feed(rig, rig.source.heartbeat())
    rig.source.transaction(10)
    last = file.events[-1]
    assert struct.unpack_from("<I", last, 13) == (0,)
    count = sum(1 for _ in split(b"".join(probe.files[-1].events))) - 2
    feed(rig, *file.events[-count:])
    assert rig.log.head().position.pos == 1 << 32
    assert bytes_of(rig.served()) == rig.source.committed()


XA_COMMITTED = b"\1" + bytes(12)
Ending = Callable[[MadeSource], object]
ENDINGS: dict[str, tuple[Ending, bool]] = {
    "rolled back": (lambda source: source.query(b"ROLLBACK"), True),
    "one phase": (lambda source: source.add(EventType.XA_PREPARE, XA_COMMITTED), False),
    "committed": (lambda source: source.query(b"COMMIT"), False),
    "partly": (lambda source: (source.query(b"ROLLBACK TO `s`"), source.add(EventType.XID, bytes(8))), True),
}


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("name", ENDINGS)
def test_a_group_that_is_taken_back_comes_whole(rig: Rig, name: str, reopen: bool) -> None:
    end, whole = ENDINGS[name]
    rig.source.gtid()
    if not rig.source.mariadb:
        rig.source.query(b"BEGIN")
    for _ in range(30):
        rig.source.add(EventType.WRITE_ROWS_V1, bytes(100))
    end(rig.source)
    start = rig.log.head().offset
    rig.source.transaction(10)
    rig.fetch()
    if reopen:
        rig.reopen()
    blocks = rig.served(start)
    assert bytes_of(rig.served()) == rig.source.committed()
    assert [block.ends_group for block in blocks].count(False) == (0 if whole else len(blocks) - 2)
    assert blocks[0].start == start
    assert len(blocks) == 2 if whole else len(blocks) > 5


def test_two_replicas_with_one_server_id_try_again() -> None:
    assert kind_of(4052) is ErrorKind.CONFLICT
    assert errors.relay.SOURCE_CONFLICT.retryable


def test_a_set_in_an_unknown_format_proves_nothing() -> None:
    assert GtidSet("what is this").conflict_with("0-1-1") == ""
