"""The scan of ordinary events and the walk event by event store the same, however the stream is cut or damaged."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.events import FLAG_ARTIFICIAL
from shardmerge.worker.binlog.events import EventType as T
from shardmerge.worker.core.mysql.connection import Endpoint, ServerInfo, Session
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.appender import Appender
from shardmerge.worker.relay.fetch.dump_connection import Dump
from shardmerge.worker.relay.fetch.dump_start import FromFile, FromGtids
from shardmerge.worker.relay.fetch.fetcher import store
from shardmerge.worker.relay.log import fast_scan as scanning
from shardmerge.worker.relay.log import group_walker as groups
from shardmerge.worker.relay.log.fast_scan import scan
from shardmerge.worker.relay.log.index_records import EntryKind, IndexEntry
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.segment import SegmentIndex
from shardmerge.worker.relay.log.xa_tracker import PrepareUnknown
from shardmerge.worker.relay.model import Head
from tests.support.examples import examples
from tests.support.made_source import SERVER, MadeSource, event, query_body
from tests.support.serialized import tagged_gtid

START = SourcePosition("mysql-bin.000001", 4)
OTHER = bytes(range(16, 32))
LARGE_GAP = (1 << 30) - 1


def uncompiled() -> Callable[..., object]:
    """The same source, run by Python itself."""
    path = Path(scanning.__file__).parent / "fast_scan.py"
    spec = importlib.util.spec_from_file_location("uncompiled_scan", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Callable[..., object]", module.scan)


PLAIN = uncompiled()


def nothing(*_: object) -> None:
    """A scan that leaves everything to the walk."""


@dataclass(slots=True)
class Pieces:
    """A socket that returns a stream in pieces of these sizes, then is closed.

    Who does not wait gets ``ready`` pieces, then nothing until it waits. ``waits``: how often a caller waited.
    """

    stream: bytes
    sizes: list[int]
    ready: int = 0
    waits: int = 0
    timeout: float | None = None
    _at: int = 0
    _number: int = 0
    _left: int = 0

    def settimeout(self, value: float | None) -> None:
        self.timeout = value

    def recv_into(self, buffer: memoryview) -> int:
        if self.timeout == 0:
            self._left -= 1
            if self._left < 0:
                raise BlockingIOError
        else:
            self._left = self.ready
            self.waits += 1
        size = min(self.sizes[self._number % len(self.sizes)], len(buffer), len(self.stream) - self._at)
        buffer[:size] = self.stream[self._at : self._at + size]
        self._at += size
        self._number += 1
        return size


def packets(events: list[bytes]) -> bytes:
    """As a server sends them: length, number, OK, event."""
    return b"".join(
        (len(made) + 1).to_bytes(3, "little") + bytes([number & 0xFF, 0]) + made for number, made in enumerate(events)
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the log and of how it is asked for."""

    spacing: int = 256 * 1024
    segment_bytes: int = 1 << 20
    known: str | None = None
    """A walker after a request by GTID, after these."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that can be seen of what was stored, and what ended it."""

    error: str
    head: Head
    position: SourcePosition
    entries: list[tuple[IndexEntry, IndexEntry | None, SegmentIndex | None]]
    files: dict[str, bytes]
    by_step: int


def stored(stream: bytes, sizes: list[int], shape: Shape, scanner: Callable[..., object] = scan) -> Outcome:
    directory = Path(tempfile.mkdtemp(prefix="scan-"))
    log = RelayLog(directory, "s", shape.segment_bytes, shape.spacing)
    log.begin(START)
    appender = Appender(log)
    try:
        if shape.known is None:
            appender.connect(FromFile(START, seed=False), "")
        else:
            log.connected("server", START, shape.known)
            appender.connect(FromGtids(shape.known), "server")
        session = cast("Session", SimpleNamespace(_sock=Pieces(stream, sizes)))
        dump = Dump(session, cast("ServerInfo", None), "s", Endpoint("127.0.0.1", 1, "u"))
        with (
            mock.patch.object(groups, "scan", scanner),
            mock.patch.object(Appender, "feed", autospec=True, side_effect=Appender.feed) as feed,
        ):
            error = _ended(dump, appender)
        files = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".json"}
        entries = [(segment.begin, segment.end, segment.index) for segment in log.segments()]
        return Outcome(error, log.head(), appender.position, entries, files, feed.call_count)
    finally:
        appender.close()
        shutil.rmtree(directory)


def _ended(dump: Dump, appender: Appender) -> str:
    now = 1_700_000_000.25
    try:
        while True:
            dump.receive()
            appender.set_received_at(now)
            now += 0.5
            store(dump, appender)
    except (ShardmergeError, PrepareUnknown) as error:
        return str(error)


def same(one: Outcome, other: Outcome) -> None:
    assert (one.error, one.head, one.position) == (other.error, other.head, other.position)
    assert one.entries == other.entries
    assert one.files == other.files


@dataclass(frozen=True, slots=True)
class Step:
    """Something a source writes; ``value`` is whatever it takes."""

    name: str
    value: tuple[int, ...] = ()


def _other_server(source: MadeSource, number: int) -> None:
    """A transaction that came from elsewhere."""
    if source.mariadb:
        source.add(T.MARIADB_GTID, struct.pack("<QIB6x", number, number % 3, 0))
    else:
        source.add(T.GTID, bytes([1]) + OTHER + struct.pack("<Q", number) + bytes(17) + bytes(number % 9))
        source.query(b"BEGIN")
    source.add(T.TABLE_MAP, bytes(20))
    source.add(T.WRITE_ROWS_V2, bytes(30))
    source.add(T.XID, bytes(8))


def _jump(source: MadeSource, before_edge: int) -> None:
    """The source leaves something out, if it can be up to where the places in 32 bits wrap to 0."""
    file = source.files[-1]
    file.ends[-1] += min(-file.end % (1 << 32) - before_edge % 200, LARGE_GAP) if before_edge else LARGE_GAP


def _special(source: MadeSource, which: int) -> None:
    begin = [(T.QUERY, query_body(b"BEGIN"))] if not source.mariadb else []
    rows = (T.UPDATE_ROWS_V2, bytes(40))
    xa = (T.QUERY, query_body(b"XA START X'31',X'',1")), rows, (T.QUERY, query_body(b"XA END X'31',X'',1"))
    xid = T.XID, bytes(8)
    prepared = T.XA_PREPARE, bytes([0]) + struct.pack("<III", 1, 1, 0) + b"1"
    groups: list[list[tuple[int, bytes]]] = [
        [*begin, rows, (T.QUERY, query_body(b"ROLLBACK"))],
        [*begin, (T.QUERY, query_body(b"SAVEPOINT a")), rows, (T.QUERY, query_body(b"ROLLBACK TO a")), xid],
        [*begin, rows, (T.QUERY, query_body(b"CREATE TABLE t (a INT)")), rows, xid],
        [*begin, rows, (T.QUERY, query_body(b"COMMIT"))],
        [*xa, prepared],
        [(T.QUERY, query_body(b"XA COMMIT X'31',X'',1"))],
        [*begin, (T.INTVAR, bytes(9)), (T.QUERY, query_body(b"INSERT INTO t VALUES (1)")), xid],
        [*begin, (T.VIEW_CHANGE, bytes(9)), rows, xid],
        [rows, xid],
        [(T.QUERY, query_body(b"BEGINS")), (T.QUERY, query_body(b"begin")), rows],
    ]  # fmt: skip
    source.gtid()
    for kind, body in groups[which % len(groups)]:
        source.add(kind, body)


def _head(source: MadeSource, which: int) -> None:
    """A transaction after another kind of GTID event."""
    if source.mariadb:
        source.sequence += which % 2
        source.add(T.MARIADB_GTID, struct.pack("<QIB6x", source.sequence, 0, 1 << which % 8))
    elif which % 3 == 0:
        source.add(T.ANONYMOUS_GTID, bytes(42))
    elif which % 3 == 1:
        source.add(T.GTID_TAGGED, tagged_gtid(UUID(int=5), "blue", which + 1, 1))
    else:
        source.sequence += which
        body = bytes([1]) + SERVER + struct.pack("<Q", source.sequence) + bytes(17)
        source.add(T.GTID, body + struct.pack("<Q", 1_700_000_000_250_000 + which)[:7] + bytes(which))
    source.query(b"BEGIN")
    source.add(T.ANNOTATE_ROWS, bytes(5))
    source.add(T.DELETE_ROWS_V1, bytes(30))
    source.add(T.XID, bytes(8))


WRITES: dict[str, Callable[[MadeSource, tuple[int, ...]], object]] = {
    "rows": lambda source, sizes: source.transaction(*sizes),
    "ddl": lambda source, _: source.statement(b"ALTER TABLE t FORCE"),
    "rotate": lambda source, _: source.rotate(),
    "crash": lambda source, value: source.crash(inside_group=bool(value[0] % 2)),
    "other": lambda source, value: _other_server(source, value[0] + 1),
    "jump": lambda source, value: _jump(source, value[0]),
    "special": lambda source, value: _special(source, value[0]),
    "head": lambda source, value: _head(source, value[0]),
}

numbers = st.integers(0, 30).map(lambda number: (number,))
sizes_of_rows = st.lists(st.one_of(st.integers(0, 120), st.integers(1900, 3000)), max_size=5).map(tuple)
steps = st.one_of(
    st.builds(Step, st.just("rows"), sizes_of_rows),
    st.builds(Step, st.just("rows"), sizes_of_rows),
    st.builds(Step, st.just("rows"), sizes_of_rows),
    st.builds(Step, st.sampled_from(sorted(WRITES.keys() - {"rows"})), numbers),
)
shapes = st.builds(
    Shape,
    st.sampled_from([300, 1000, 256 * 1024]),
    st.sampled_from([1500, 10_000, 1 << 20]),
    st.one_of(st.none(), st.just(""), st.just(f"{UUID(bytes=SERVER)}:4-5:9,{UUID(bytes=OTHER)}:3")),
)


def written(source: MadeSource, work: list[Step]) -> list[bytes]:
    for step in work:
        WRITES[step.name](source, step.value)
    return source.dump(START)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.booleans(),
    st.booleans(),
    st.lists(steps, max_size=25),
    shapes,
    st.lists(st.integers(1, 4000), min_size=1, max_size=6),
    st.one_of(st.none(), st.tuples(st.integers(0), st.integers(1, 255))),
    st.booleans(),
)
@example(
    True, True, [Step("jump", (0,))] * 4 + [Step("jump", (90,))] + [Step("rows", (9,))] * 3, Shape(), [99], None, False
)
@example(  # a lower number of the same server
    True, False, [Step("other", (8,)), Step("rows", ()), Step("rows", (1900,))], Shape(300, 1500), [219], None, False
)
def test_scan_and_walk_store_the_same(
    mariadb: bool,
    checksum: bool,
    work: list[Step],
    shape: Shape,
    sizes: list[int],
    damage: tuple[int, int] | None,
    plain: bool,
) -> None:
    stream = bytearray(packets(written(MadeSource(mariadb=mariadb, checksum=checksum), work)))
    if damage is not None:
        stream[damage[0] % len(stream)] ^= damage[1]
    walked = stored(bytes(stream), sizes, shape, nothing)
    scanned = stored(bytes(stream), sizes, shape, PLAIN if plain else scan)
    same(scanned, walked)


# --- what the scan must leave to the walk, case by case: at random it comes up too seldom


def _ordinary(source: MadeSource, count: int = 3) -> None:
    for _ in range(count):
        source.transaction(40, 50)


def _gtids_again(source: MadeSource) -> None:
    """A new file whose first GTID is an old one: only where a file begins it is compared."""
    source.rotate()
    source.sequence = 0


def _out_of_turn(source: MadeSource) -> None:
    """Numbers that leave some out: the set they make has gaps."""
    for _ in range(4):
        source.sequence += 3
        _ordinary(source, 2)


def _many_origins(source: MadeSource) -> None:
    """Transactions from elsewhere among the source's own, whose numbers continue as theirs do."""
    for domain, server in ((0, 1), (1, 1), (1, 2), (0, 2), (0, 1)):
        for _ in range(2):
            source.sequence += 1
            if not source.mariadb:
                origin = SERVER if server == 1 else OTHER
                source.add(T.GTID, bytes([1]) + origin + struct.pack("<Q", source.sequence) + bytes(17))
                source.query(b"BEGIN")
            else:
                made = source.add(T.MARIADB_GTID, struct.pack("<QIB6x", source.sequence, domain, 0))[:-4]
                made = made[:5] + struct.pack("<I", server) + made[9:]
                source.files[-1].events[-1] = made + struct.pack("<I", zlib.crc32(made))
            source.add(T.WRITE_ROWS_V2, bytes(30))
            source.add(T.XID, bytes(8))


def _too_far(source: MadeSource) -> None:
    """More is left out than a source does."""
    source.files[-1].ends[-1] += LARGE_GAP + 2


def _artificial(source: MadeSource) -> None:
    """Rows that are marked as being in no file."""
    source.gtid()
    if not source.mariadb:
        source.query(b"BEGIN")
    source.add(T.WRITE_ROWS_V2, bytes(30))
    end = source.files[-1].end
    source.files[-1].events.append(event(T.WRITE_ROWS_V2, bytes(30), end + 53, flags=FLAG_ARTIFICIAL))
    source.files[-1].ends.append(end + 53)
    source.add(T.XID, bytes(8))


def _headed(source: MadeSource, statement: bytes, schema: bytes) -> None:
    """A statement where MySQL has BEGIN; rows after it are outside of any transaction if it is not."""
    source.gtid()
    source.query(statement, schema)
    source.add(T.WRITE_ROWS_V2, bytes(30))
    source.add(T.XID, bytes(8))


def _flagged(source: MadeSource, flags: int) -> None:
    """Rows, then a statement, after a GTID of MariaDB with these flags."""
    for _ in range(2):
        source.sequence += 1
        source.add(T.MARIADB_GTID, struct.pack("<QIB6x", source.sequence, 0, flags))
        source.add(T.WRITE_ROWS_V2, bytes(30))
        source.add(T.XID, bytes(8))
        source.sequence += 1
        source.add(T.MARIADB_GTID, struct.pack("<QIB6x", source.sequence, 0, flags))
        source.query(b"CREATE TABLE t (a INT)")


def _whole_groups(source: MadeSource) -> None:
    for size in (10, 150, 400):
        source.transaction(*[size] * 8)
        _ordinary(source)


CASES: dict[str, Callable[[MadeSource], object]] = {
    "an old GTID where a file begins": _gtids_again,
    "an old GTID inside a file": lambda source: setattr(source, "sequence", 1),
    "GTIDs out of turn": _out_of_turn,
    "large groups": _whole_groups,
    "many origins": _many_origins,
    "anonymous": lambda source: _head(source, 0),
    "too large a gap": _too_far,
    "artificial": _artificial,
    **{
        f"{statement!r} in {schema!r}": lambda source, statement=statement, schema=schema: _headed(
            source, statement, schema
        )
        for statement in (b"BEGIN", b"BEGINS", b"BEGI", b"XEGIN", b"BXGIN", b"BEXIN", b"BEGXN", b"BEGIX", b"")
        for schema in (b"", b"shop")
    },
    **{
        f"flags {flags:#04x}": lambda source, flags=flags: _flagged(source, flags)
        for flags in (0, *(1 << bit for bit in range(8)), 0xFF)
    },
    **{f"special {which}": lambda source, which=which: _special(source, which) for which in range(10)},
}


def _all_the_same(stream: bytes, size: int, shape: Shape) -> Outcome:
    """What the scan makes of the stream in pieces of ``size``, compiled or not, is what the walk makes of it."""
    walked, scanned = stored(stream, [size], shape, nothing), stored(stream, [size], shape)
    plain = stored(stream, [size], shape, PLAIN)
    same(scanned, walked)
    same(plain, walked)
    assert plain.by_step == scanned.by_step
    return scanned


@pytest.mark.parametrize("mariadb", [True, False], ids=["MariaDB", "MySQL"])
@pytest.mark.parametrize("name", CASES)
def test_cases_that_need_the_walk(name: str, mariadb: bool) -> None:
    source = MadeSource(mariadb=mariadb)
    _ordinary(source)
    CASES[name](source)
    _ordinary(source)
    stream = packets(source.dump(START))
    _all_the_same(stream, 1 << 20, Shape())
    _all_the_same(stream, 700, Shape(spacing=300, segment_bytes=1500))
    _all_the_same(stream, 1 << 20, Shape(known=""))


@pytest.mark.parametrize("mariadb", [True, False], ids=["MariaDB", "MySQL"])
def test_an_old_gtid_at_the_start_of_a_file_is_reported(mariadb: bool) -> None:
    source = MadeSource(mariadb=mariadb)
    _ordinary(source)
    _gtids_again(source)
    _ordinary(source)
    found = stored(packets(source.dump(START)), [1 << 20], Shape())
    assert errors.relay.SOURCE_LOG_RESET.name in found.error


def test_checksums_of_long_events_are_looked_at() -> None:
    source = MadeSource()
    for _ in range(20):
        source.transaction(5000)
    stream = bytearray(packets(source.dump(START)))
    assert _all_the_same(bytes(stream), 1 << 20, Shape()).by_step < 10
    stream[len(stream) // 2] ^= 1
    assert errors.relay.EVENT_CHECKSUM.name in _all_the_same(bytes(stream), 1 << 20, Shape()).error


@pytest.mark.parametrize("status", [0xFE, 0xFF])
def test_a_packet_that_is_no_event_ends_the_stream(status: int) -> None:
    """An error, or the end: it looks like an event but for its first byte."""
    source = MadeSource()
    _ordinary(source)
    sent = source.dump(START)
    stream = bytearray(packets(sent))
    stream[len(packets(sent[:-3])) + 4] = status
    assert _all_the_same(bytes(stream), 1 << 20, Shape()).head.position.pos < source.position.pos


@pytest.mark.parametrize("original_follows", [False, True])
def test_a_commits_microseconds_are_read(original_follows: bool) -> None:
    """Those of the GTID event, not the second of the group's end; the bit above them is none of theirs."""
    source = MadeSource(mariadb=False)
    _ordinary(source)
    source.sequence += 1
    body = bytes([1]) + SERVER + struct.pack("<Q", source.sequence) + bytes(17)
    source.add(T.GTID, body + struct.pack("<Q", 1_600_000_000_123_456 | original_follows << 55)[:7] + bytes(7))
    source.query(b"BEGIN")
    source.add(T.WRITE_ROWS_V2, bytes(30))
    source.add(T.XID, bytes(8))
    found = _all_the_same(packets(source.dump(START)), 1 << 20, Shape())
    assert found.head.commit_time == 1_600_000_000.123456


@pytest.mark.parametrize("mariadb", [True, False], ids=["MariaDB", "MySQL"])
@pytest.mark.parametrize("spacing", [40, 60, 90, 110, 130, 300])
def test_groups_larger_than_the_spacing_are_marked(spacing: int, mariadb: bool) -> None:
    """Wherever in a group the spacing is reached: at its GTID, at BEGIN, at rows."""
    source = MadeSource(mariadb=mariadb)
    _ordinary(source)
    for size in (20, 60, 130):
        source.transaction(*[size] * 7)
    found = _all_the_same(packets(source.dump(START)), 1 << 20, Shape(spacing=spacing))
    assert any(entry.kind is EntryKind.PIECE for _, _, index in found.entries if index for entry in index.entries)


def _crossing(source: MadeSource, before_edge: int | None) -> bytes:
    """Transactions; with ``before_edge`` the places in 32 bits wrap to 0 so many bytes after the fourth."""
    for _ in range(4):
        source.transaction(40)
        if before_edge is not None:
            source.files[-1].ends[-1] += min(-source.files[-1].end % (1 << 32) - before_edge, LARGE_GAP)
    _ordinary(source, 2)
    return packets(source.dump(START))


@pytest.mark.parametrize("mariadb", [True, False], ids=["MariaDB", "MySQL"])
def test_places_in_a_file_beyond_4_gib(mariadb: bool) -> None:
    """Wherever in a group the edge lies; an event that ends there has 0, which the walk must see."""
    plain = MadeSource(mariadb=mariadb)
    steps = _all_the_same(_crossing(plain, None), 1 << 20, Shape()).by_step
    ends = plain.files[-1].ends
    behind = [end - ends[-1 - EVENTS[mariadb]] for end in ends[-EVENTS[mariadb] : -1]]
    for before_edge in sorted({near for end in behind for near in (end - 1, end, end + 1)}):
        source = MadeSource(mariadb=mariadb)
        found = _all_the_same(_crossing(source, before_edge), 1 << 20, Shape())
        assert found.head.position.pos == source.position.pos >= 1 << 32
        assert found.by_step == steps + (before_edge in behind), before_edge


EVENTS = {True: 8, False: 10}
"""Events of two ordinary transactions, by whether MariaDB wrote them."""


@pytest.fixture(params=["MariaDB", "MySQL", "MySQL by GTID"])
def shop(request: pytest.FixtureRequest) -> Iterator[tuple[MadeSource, Shape]]:
    """A source with many small transactions."""
    source = MadeSource(mariadb=request.param == "MariaDB")
    for _ in range(300):
        source.transaction(40, 50)
    yield source, Shape(known="" if request.param == "MySQL by GTID" else None)


def test_ordinary_events_are_not_looked_at_one_by_one(shop: tuple[MadeSource, Shape]) -> None:
    source, shape = shop
    found = stored(packets(source.dump(START)), [20_000], shape)
    assert found.by_step < 20
    assert found.head.position.pos == source.position.pos
    assert found.head.position.gtid_set == str(source.executed)


def test_whole_groups_are_published_when_no_more_comes(shop: tuple[MadeSource, Shape]) -> None:
    source, shape = shop
    before = source.position
    source.transaction(40)
    stream = packets(source.dump(START))
    for missing, expected in ((0, source.position), (1, before)):
        found = stored(stream[: len(stream) - missing], [len(stream) - 300, 299], shape)
        assert found.head.position.pos == expected.pos
        assert "closed the connection" in found.error


def test_a_damaged_event_among_ordinary_ones_is_reported(shop: tuple[MadeSource, Shape]) -> None:
    source, shape = shop
    stream = bytearray(packets(source.dump(START)))
    stream[len(stream) // 2] ^= 1
    found = stored(bytes(stream), [len(stream)], shape)
    assert errors.relay.EVENT_CHECKSUM.name in found.error


@pytest.mark.parametrize(("size", "ready", "waits"), [(16_384, 2, 2), (16_384, 0, 4), (16_383, 2, 4)])
def test_all_full_records_that_have_come_are_taken_at_once(size: int, ready: int, waits: int) -> None:
    """A wait more: that which learns of the end."""
    stream = bytes([1] * (3 * size))
    pieces = Pieces(stream, [size], ready)
    session = cast("Session", SimpleNamespace(_sock=pieces))
    dump = Dump(session, cast("ServerInfo", None), "s", Endpoint("127.0.0.1", 1, "u"))
    with pytest.raises(ShardmergeError, match="closed the connection"):
        while True:
            dump.receive()
    buffer, start, end = dump.received()
    assert (pieces.waits, buffer[start:end]) == (waits, stream)
    assert pieces.timeout != 0


def test_an_ordinary_event_that_overlaps_the_one_before_is_reported() -> None:
    source = MadeSource(checksum=False)
    for _ in range(50):
        source.transaction(40, 50)
    sent = source.dump(START)
    at = max(number for number, made in enumerate(sent) if made[4] == T.WRITE_ROWS_V1)
    (log_pos,) = struct.unpack_from("<I", sent[at], 13)
    sent[at] = sent[at][:13] + struct.pack("<I", log_pos - 1) + sent[at][17:]
    found = stored(packets(sent), [20_000], Shape())
    assert errors.relay.EVENT_OVERLAP.name in found.error
