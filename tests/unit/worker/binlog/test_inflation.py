"""Compressed events are decompressed up to a limit that the operator sets, in pieces: memory stays near the limit."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.config import defaults
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog import query_text
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.binlog.query_text import parse_query
from shardmerge.worker.core import inflation
from tests.support.binlog import forge, only, query
from tests.support.made_source import MadeSource, query_body
from tests.unit.worker.binlog.test_decoder import BINLOG, GTID, SMALL, XID, table_map
from tests.unit.worker.binlog.test_transaction_payload import body, compressed, inner, payload_of, transaction
from tests.unit.worker.relay.rig import Rig

MIB = 1 << 20
LIMIT = 16


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    inflation.use(LIMIT * MIB)
    yield
    inflation.use(defaults.MAX_INFLATED_EVENT_MIB * MIB)


def packed(plain: bytes, stated: int | None = None) -> bytes:
    return b"\x84" + struct.pack(">I", len(plain) if stated is None else stated) + zlib.compress(plain)


def query_event(plain: bytes, stated: int | None = None) -> bytes:
    fixed = struct.pack("<IIBHH", 7, 0, 1, 0, 0) + b"d\0"
    return forge(EventType.QUERY_COMPRESSED, fixed + packed(plain, stated), log_pos=777)


def rows_block(images: bytes, stated: int | None = None) -> bytes:
    """A group with a compressed rows event of SMALL."""
    head = (7).to_bytes(6, "little") + b"\1\0\2\3"
    rows = forge(EventType.WRITE_ROWS_COMPRESSED_V1, head + packed(images, stated), log_pos=777)
    return GTID + table_map() + rows + XID


def decode(block: bytes) -> int:
    decoder = BlockDecoder(only(SMALL), source="s1")
    decoder.open(BINLOG.format_description)
    return len(decoder.decode(block))


def split_by_lane(block: bytes) -> object:
    decoder = BlockDecoder(only(SMALL), source="s1")
    decoder.open(BINLOG.format_description)
    return decoder.split_by_lane(block, 2)


def peak(call: Callable[[], object]) -> int:
    """The bytes that the call holds at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(call: Callable[[], object]) -> ShardmergeError:
    with pytest.raises(ShardmergeError) as caught:
        call()
    return caught.value


LARGE = bytes((LIMIT + 48) * MIB)
PAYLOAD = body(transaction(len(LARGE)))

BOMBS: dict[str, Callable[[], object]] = {
    "rows": lambda: decode(ROWS_BOMB),
    "rows, by lane": lambda: split_by_lane(ROWS_BOMB),
    "statement": lambda: parse_query(QUERY_BOMB, checksum=True, source="s1"),
    "statement of the relay": lambda: query_text.statement_of(QUERY_BOMB, EventType.QUERY_COMPRESSED, True, "s1"),
    "statement of the decoder": lambda: decode(GTID + QUERY_BOMB),
    "event of a payload": lambda: list(payload_of(PAYLOAD).events()),
}
ROWS_BOMB = rows_block(LARGE)
QUERY_BOMB = query_event(LARGE)


@pytest.mark.parametrize("call", BOMBS.values(), ids=BOMBS)
def test_an_event_above_the_limit_is_refused_before_it_takes_memory(call: Callable[[], object]) -> None:
    found: list[ShardmergeError] = []
    taken = peak(lambda: found.append(refused(call)))
    [error] = found
    assert error.spec is errors.decode.INFLATED_EVENT_TOO_LARGE
    assert error.message.startswith("source s1: event ending at binlog position 777 has ")
    assert f"the limit of {LIMIT} MiB" in error.message
    assert "max-inflated-event-mib" in error.workaround
    assert taken < 4 * MIB


def test_a_smaller_stated_size_does_not_let_more_out() -> None:
    found: list[ShardmergeError] = []
    for block in (rows_block(LARGE, 2 * MIB), GTID + query_event(LARGE, 2 * MIB)):
        assert peak(lambda block=block: found.append(refused(lambda: decode(block)))) < 8 * MIB
    assert [error.spec for error in found] == [errors.decode.MALFORMED_EVENT] * 2


def test_memory_stays_near_the_size_of_the_event() -> None:
    """Not a multiple of it, as when pieces are joined to a copy."""
    plain = bytes(LIMIT * MIB)
    part = packed(plain)
    event = body(transaction(LIMIT * MIB - 100))
    assert inflation.inflate(part, "s1", 777) == plain
    assert peak(lambda: inflation.inflate(part, "s1", 777)) < (LIMIT + 4) * MIB
    assert peak(lambda: max(map(len, payload_of(event).events()))) < (LIMIT + 4) * MIB


@pytest.mark.parametrize("size", [0, 1, 65_535, MIB - 1, MIB, MIB + 1, 5 * MIB + 3])
@pytest.mark.parametrize("compressible", [True, False])
def test_every_size_is_read_whole(size: int, compressible: bool) -> None:
    plain = bytes(size) if compressible else random.Random(size).randbytes(size)
    part = packed(plain)
    assert inflation.inflate(part, "s1", 1) == plain
    assert inflation.inflate(part, "s1", 1, b"head") == b"head" + plain
    for broken in (part[:-5], part[: len(part) // 2], packed(plain, size + 1), packed(plain, max(size - 1, 0) or 2)):
        assert refused(lambda broken=broken: inflation.inflate(broken, "s1", 1)).spec is errors.decode.MALFORMED_EVENT


def test_the_limit_is_that_of_the_process() -> None:
    inflation.use(len(LARGE) + MIB)
    assert parse_query(QUERY_BOMB, checksum=True).statement == LARGE
    assert len(list(payload_of(PAYLOAD).events())) == 4


def test_a_payload_that_must_be_judged_as_a_whole_is_bounded(tmp_path: Path) -> None:
    """It is kept in memory until its end: the limit is for all of it."""
    rig = Rig(tmp_path, MadeSource(mariadb=False, checksum=True))
    back = inner(EventType.QUERY, query_body(b"ROLLBACK"))
    inflation.use(MIB)
    compressed(rig, transaction(*[100_000] * 30, end=back))
    rig.fetch()
    found = refused(rig.served)
    rig.appender.close()
    assert found.spec is errors.decode.INFLATED_EVENT_TOO_LARGE
    assert "more than the limit of 1 MiB" in found.message


def test_query_below_the_limit() -> None:
    assert parse_query(query_event(b"ALTER TABLE t FORCE"), checksum=True).text == "ALTER TABLE t FORCE"
    assert parse_query(query(b"BEGIN"), checksum=True).statement == b"BEGIN"
