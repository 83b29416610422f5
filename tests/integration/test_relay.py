"""The relay against a real MariaDB."""

from __future__ import annotations

import multiprocessing
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from proto import errors
from proto.common_pb2 import Stage
from proto.errors import ErrorSpec, ShardmergeError
from tests.support.binlog import read_binlog, split
from tests.support.disk import fill, small_disk
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from worker.binlog.events import EventType
from worker.connection import Endpoint, ServerInfo, Session, server_info
from worker.position import RelayOffset, SourcePosition
from worker.relay import dump
from worker.relay.relay import (
    AtHead,
    AtStatement,
    BlockData,
    PurgePolicy,
    ReachedUntil,
    Relay,
)
from worker.relay.server_id import derived, unleased
from worker.unit import StopSignal

START = SourcePosition("mysql-bin.000001", 4)
SMALL = 256 * 1024
_NOT_SENT = {EventType.ANNOTATE_ROWS, EventType.FORMAT_DESCRIPTION}

MakeServer = Callable[..., MariaDB]
MakeRelay = Callable[..., Relay]


@pytest.fixture
def source(make_server: MakeServer) -> MariaDB:
    server = make_server("source", "--max-allowed-packet=64M", "--skip-slave-start")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGBLOB)")
    return server


def open_relay(server: MariaDB, directory: Path, **settings: object) -> Relay:
    endpoint = Endpoint(server.host, server.port, str(settings.pop("user", "root")), str(settings.pop("password", "")))
    purge = cast("PurgePolicy", settings.pop("purge", PurgePolicy()))
    segment_bytes = cast("int", settings.pop("segment_bytes", SMALL))
    assert not settings
    return Relay(directory, "mysql-01", endpoint, "mariadb", unleased(derived(directory)), purge, segment_bytes)


@pytest.fixture
def make_relay(tmp_path: Path) -> Iterator[MakeRelay]:
    """``make_relay(server, directory=…, **settings)``: opened, not started; stopped after the test."""
    made: list[Relay] = []

    def make(server: MariaDB, directory: Path = tmp_path / "relay", **settings: object) -> Relay:
        relay = open_relay(server, directory, **settings)
        made.append(relay)
        return relay

    yield make
    for relay in made:
        relay.stop()


def end_of(server: MariaDB) -> SourcePosition:
    [(file, pos, *_)] = server.query("SHOW MASTER STATUS")
    return SourcePosition(str(file), cast("int", pos))


def caught_up(relay: Relay, server: MariaDB) -> RelayOffset:
    return relay.locate(end_of(server), 60, StopSignal())


def served(relay: Relay, start: RelayOffset | None = None, end: RelayOffset | None = None) -> list[bytes]:
    """Events but for format descriptions."""
    found: list[bytes] = []
    items = relay.subscribe(start or relay.first().offset, end or relay.head().offset, None, StopSignal())
    for item in items:
        if isinstance(item, BlockData):
            found += [made for made in split(item.events) if made[4] != EventType.FORMAT_DESCRIPTION]
        else:
            assert isinstance(item, ReachedUntil)
    return found


def written(server: MariaDB) -> list[bytes]:
    """What the server's own files hold, of what a replica is sent."""
    found: list[bytes] = []
    for name, *_ in server.query("SHOW BINARY LOGS"):
        events = read_binlog(server.directory / "data" / str(name)).each()
        found += [made for made in events if made[4] not in _NOT_SENT]
    return found


def assert_same(relay: Relay, server: MariaDB) -> None:
    """Not `==` in the assertion: pytest would compare megabytes for its message."""
    caught_up(relay, server)
    got, wanted = served(relay), written(server)
    same = got == wanted
    assert same, f"{len(got)} events served, {len(wanted)} written"


def failed_with(relay: Relay, spec: ErrorSpec) -> ShardmergeError:
    def look() -> ShardmergeError | None:
        error = relay.status().error
        return error if error is not None and error.spec is spec else None

    return until(look, f"the relay's error is {spec.name}")


def test_copies_every_byte_of_every_kind_of_group(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    connection = source.connect("d")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t (v) VALUES ('a'), ('b')")
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t (v) VALUES (REPEAT('x', 100000))")
        cursor.execute("SAVEPOINT s")
        cursor.execute("UPDATE t SET v = REPEAT('y', 300000) WHERE id = 1")
        cursor.execute("ROLLBACK TO s")
        cursor.execute("COMMIT")
        # Larger than a packet of the protocol (16 MiB), which then comes in parts.
        cursor.execute("INSERT INTO t (v) VALUES (REPEAT('z', 20000000))")
        cursor.execute("CREATE TABLE m (a INT) ENGINE=MyISAM")
        cursor.execute("INSERT INTO m VALUES (1)")
        cursor.execute("CREATE TABLE copy SELECT id FROM t")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SET GLOBAL binlog_checksum = NONE")
        cursor.execute("INSERT INTO t (v) VALUES ('no checksum')")
        cursor.execute("SET GLOBAL binlog_checksum = CRC32")
        cursor.execute("SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10")
        cursor.execute("ALTER TABLE t COMMENT 'compressed, for it is longer than ten bytes'")
        cursor.execute("SET GLOBAL log_bin_compress = OFF")
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute("INSERT INTO t (v) VALUES ('as a statement')")
    connection.close()
    assert_same(relay, source)
    assert relay.head().position.gtid_set == str(source.query("SELECT @@gtid_binlog_pos")[0][0])
    texts: list[str] = []
    for item in relay.subscribe(relay.first().offset, relay.head().offset, lambda _: True, StopSignal()):
        if isinstance(item, AtStatement):
            texts.append(item.statement.text.split("(")[0].split("COMMENT")[0].strip())
    assert texts == [
        "CREATE DATABASE d",
        "CREATE TABLE d.t",
        "CREATE TABLE m",
        "CREATE TABLE `copy`",
        "ALTER TABLE t",
        "INSERT INTO t",
    ]


def test_a_lone_transaction_wakes_a_subscriber_within_milliseconds(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    relay.ensure_from(end_of(source))
    relay.start()
    start = caught_up(relay, source)
    arrived: list[float] = []
    stop, idle = StopSignal(), threading.Event()

    def read() -> None:
        for item in relay.subscribe(start, None, None, stop):
            if isinstance(item, AtHead):
                idle.set()
            elif isinstance(item, BlockData):
                arrived.append(time.perf_counter())

    reader = threading.Thread(target=read)
    reader.start()
    connection = source.connect("d")
    lags: list[float] = []
    with connection.cursor() as cursor:
        for number in range(50):
            assert idle.wait(30)
            cursor.execute("INSERT INTO t (v) VALUES ('x')")
            committed = time.perf_counter()
            until(lambda number=number: len(arrived) > number, "the transaction arrives", every=0.001)
            lags.append(arrived[number] - committed)
    connection.close()
    stop.set()
    reader.join()
    assert statistics.median(lags) < 0.010


def test_an_idle_relay_with_subscribers_costs_almost_nothing(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    head = caught_up(relay, source)
    stop = StopSignal()
    readers = [
        threading.Thread(target=lambda: list(relay.subscribe(head, None, None, stop)), daemon=True) for _ in range(8)
    ]
    for reader in readers:
        reader.start()
    before, since = time.process_time(), time.monotonic()
    until(lambda: time.monotonic() > since + 3, "three idle seconds", every=0.5)
    assert time.process_time() - before < 0.6
    stop.set()
    for reader in readers:
        reader.join()


class Writer:
    """Commits small transactions until told to end; a failed one is not counted nor tried again."""

    def __init__(self, server: MariaDB) -> None:
        self._server = server
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.done = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        connection = self._server.connect("d")
        with connection.cursor() as cursor:
            while not self._end.is_set():
                cursor.execute("INSERT INTO t (v) VALUES (REPEAT('w', 3000)), (REPEAT('v', 2000))")
                self.done += 1
        connection.close()


def dump_threads(server: MariaDB) -> list[int]:
    rows = server.query("SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump'")
    return [cast("int", row[0]) for row in rows]


def test_cut_connections_lose_and_repeat_nothing(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    with Writer(source) as writer:
        killed: set[int] = set()
        for _ in range(6):
            [thread] = until(lambda: [at for at in dump_threads(source) if at not in killed], "a new dump")
            done = writer.done
            source.execute(f"KILL {thread}")
            killed.add(thread)
            until(lambda done=done: writer.done > done + 20, "the writer goes on")
    assert_same(relay, source)
    until(lambda: relay.status().error is None, "the error is forgotten")
    assert len(served(relay)) > 20 * 6 * 3


def test_a_restarted_and_a_killed_source(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    for end in (source.stop, source.kill, source.kill):
        source.execute("INSERT INTO d.t (v) VALUES ('before')")
        end()
        error = failed_with(relay, errors.relay.SOURCE_LOST)
        assert error.spec.retryable
        assert relay.status().stage == Stage.STAGE_RUNNING
        source.start()
        source.execute("INSERT INTO d.t (v) VALUES ('after')")
        assert_same(relay, source)


def _copy_until_killed(port: int, directory: Path) -> None:
    endpoint = Endpoint("127.0.0.1", port, "root", "")
    Relay(directory, "mysql-01", endpoint, "mariadb", unleased(4711), PurgePolicy(), SMALL).start()
    threading.Event().wait()


def test_a_relay_killed_at_any_time_goes_on_where_it_was(
    source: MariaDB, make_relay: MakeRelay, tmp_path: Path
) -> None:
    open_relay(source, tmp_path / "relay").ensure_from(START)
    spawn = multiprocessing.get_context("spawn")
    with Writer(source) as writer:
        for _ in range(5):
            process = spawn.Process(target=_copy_until_killed, args=(source.port, tmp_path / "relay"))
            process.start()
            until(lambda: dump_threads(source), "the relay copies")
            done = writer.done
            until(lambda done=done: writer.done > done + 50, "the writer goes on")
            process.kill()
            process.join()
    relay = make_relay(source)
    kept = relay.head()
    assert kept.offset > RelayOffset(1, 10_000)
    relay.start()
    assert_same(relay, source)


def test_locate_makes_a_watermark_an_offset(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    early = end_of(source)
    source.execute("INSERT INTO d.t (v) VALUES ('low')")
    low = end_of(source)
    relay.ensure_from(low)
    relay.start()
    assert relay.locate(low, 30, StopSignal()) >= relay.first().offset
    with Writer(source) as writer:
        until(lambda: writer.done > 30, "rows")
        middle = end_of(source)
        offset = relay.locate(middle, 30, StopSignal())
        source.execute("FLUSH BINARY LOGS")
        until(lambda: writer.done > 60, "more rows")
    caught_up(relay, source)
    assert served(relay, end=offset) + served(relay, start=offset) == served(relay)
    assert relay.opened(offset).position.file_order() == middle.file_order()
    with pytest.raises(ShardmergeError) as caught:
        relay.locate(early, 30, StopSignal())
    assert caught.value.spec is errors.relay.POSITION_BEFORE_RELAY
    assert relay.locate(early, 30, StopSignal(), first_if_before=True) == relay.first().offset
    # Positions are those of the server: the first event behind `middle` begins there.
    [(_, _, _, _, _, info), *_] = source.query(f"SHOW BINLOG EVENTS IN '{middle.file}' FROM {middle.pos} LIMIT 1")
    assert "GTID" in str(info)


def test_an_earlier_position_begins_a_new_generation(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    source.execute("INSERT INTO d.t (v) VALUES ('early')")
    assert relay.ensure_from(end_of(source))
    relay.start()
    source.execute("INSERT INTO d.t (v) VALUES ('late')")
    old = caught_up(relay, source)
    relay_id = relay.relay_id
    reading = relay.subscribe(relay.first().offset, None, None, StopSignal())
    assert isinstance(next(reading), BlockData)
    assert not relay.ensure_from(end_of(source))
    assert relay.ensure_from(START)
    assert relay.relay_id != relay_id
    with pytest.raises(ShardmergeError) as caught:
        list(reading)
    assert caught.value.spec is errors.relay.RELAY_RESTARTED
    assert relay.first().offset > old
    assert_same(relay, source)


def test_purge_never_takes_what_a_checkpoint_needs(source: MariaDB, make_relay: MakeRelay) -> None:
    """I7"""
    everything = PurgePolicy(interval_seconds=3600, expires_hours=1e-9)
    relay = make_relay(source, purge=everything)
    relay.ensure_from(START)
    relay.start()
    with Writer(source) as writer:
        until(lambda: writer.done > 150, "rows")
    checkpoint = caught_up(relay, source)
    with Writer(source) as writer:
        until(lambda: writer.done > 250, "more rows")
    end = caught_up(relay, source)
    assert end.segment > checkpoint.segment + 2
    wanted = served(relay, start=checkpoint)
    assert relay.purge_now() == []  # nobody has said what is needed
    relay.set_needed(lambda: checkpoint)
    assert relay.purge_now() == list(range(1, checkpoint.segment))
    assert relay.first().offset.segment == checkpoint.segment
    assert served(relay, start=checkpoint) == wanted
    relay.set_needed(lambda: end)
    relay.purge_now()
    assert relay.first().offset.segment == end.segment
    with pytest.raises(ShardmergeError) as caught:
        served(relay, start=checkpoint)
    assert caught.value.spec is errors.relay.OFFSET_PURGED
    relay.stop()
    again = make_relay(source)
    again.start()
    source.execute("INSERT INTO d.t (v) VALUES ('after')")
    caught_up(again, source)
    assert len(served(again, start=end)) == 4


def test_a_wrong_password_is_named_and_mends_with_a_new_start(
    source: MariaDB, make_relay: MakeRelay, tmp_path: Path
) -> None:
    source.execute("CREATE USER u@'%' IDENTIFIED BY 'right'", "GRANT REPLICATION SLAVE ON *.* TO u@'%'")
    relay = make_relay(source, user="u", password="wrong")
    relay.ensure_from(START)
    relay.start()
    error = failed_with(relay, errors.relay.ACCESS_DENIED)
    assert "mysql-01" in error.message
    assert "wrong" not in str(error)
    until(lambda: relay.status().stage == Stage.STAGE_PAUSED, "the relay pauses")
    with pytest.raises(ShardmergeError) as caught:
        relay.locate(end_of(source), 60, StopSignal())
    assert caught.value.spec is errors.relay.ACCESS_DENIED
    source.execute("ALTER USER u@'%' IDENTIFIED BY 'wrong'")
    relay.start()
    assert_same(relay, source)
    source.execute("REVOKE REPLICATION SLAVE ON *.* FROM u@'%'")
    relay.stop()
    relay.start()
    failed_with(relay, errors.relay.PRIVILEGE_MISSING)


def test_a_purged_binlog_is_named_with_the_way_out(source: MariaDB, make_relay: MakeRelay) -> None:
    source.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    last = end_of(source)
    source.execute(f"PURGE BINARY LOGS TO '{last.file}'")
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    error = failed_with(relay, errors.relay.SOURCE_LOG_GONE)
    assert "mysql-bin.000001" in error.message
    assert "1236" in error.message
    assert "--remove-meta" in error.workaround
    until(lambda: relay.status().stage == Stage.STAGE_PAUSED, "the relay pauses")
    # While somebody needs what it has, the log stays as it is; else a task may begin it anew.
    assert not relay.ensure_from(last)
    relay.set_needed(lambda: None)
    assert relay.ensure_from(last)
    relay.start()
    assert relay.locate(last, 60, StopSignal()) == relay.head().offset


def test_a_position_behind_the_end_is_refused_by_the_source(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    relay.ensure_from(SourcePosition("mysql-bin.000001", 10_000_000))
    relay.start()
    error = failed_with(relay, errors.relay.SOURCE_LOG_GONE)
    assert "10000000" in error.message


def test_another_server_behind_the_address_is_refused(
    source: MariaDB, make_server: MakeServer, make_relay: MakeRelay
) -> None:
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, source)
    relay.stop()
    other = make_server("other")
    moved = make_relay(other)
    moved.start()
    error = failed_with(moved, errors.relay.SOURCE_LACKS_GTIDS)
    assert "server-id" in error.message


def test_a_full_disk_pauses_and_goes_on_by_itself(source: MariaDB, make_relay: MakeRelay, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 24) as disk:
        relay = make_relay(source, disk / "relay")
        relay.ensure_from(START)
        relay.start()
        caught_up(relay, source)
        ballast = fill(disk, leave_bytes=300_000)
        with Writer(source) as writer:
            until(lambda: writer.done > 200, "a megabyte of rows")
        error = failed_with(relay, errors.relay.DISK_FULL)
        assert str(disk / "relay") in error.message
        until(lambda: relay.status().stage == Stage.STAGE_PAUSED, "the relay pauses")
        before = served(relay)  # what is there can be read
        ballast.unlink()
        assert_same(relay, source)
        assert served(relay)[: len(before)] == before
        until(lambda: relay.status().error is None, "the error is forgotten")
        relay.stop()


def test_many_subscribers_read_the_same(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    stop = StopSignal()
    lengths: dict[int, int] = dict.fromkeys(range(6), 0)

    def read(number: int) -> None:
        for item in relay.subscribe(RelayOffset(1, 4), None, None, stop):
            if isinstance(item, BlockData):
                lengths[number] += len(item.events)

    threads = [threading.Thread(target=read, args=(number,)) for number in lengths]
    for thread in threads:
        thread.start()
    with Writer(source) as writer:
        until(lambda: writer.done > 300, "rows")
    caught_up(relay, source)
    # A segment's first four bytes are no events.
    size = relay.status().bytes_on_disk - 4 * relay.head().offset.segment
    until(lambda: set(lengths.values()) == {size}, f"every reader has {size} bytes")
    stop.set()
    for thread in threads:
        thread.join()


def reset_when_the_clock_has_moved(server: MariaDB) -> None:
    """A file says when it was made in whole seconds."""
    [(began,)] = server.query("SELECT UNIX_TIMESTAMP()")
    until(lambda: server.query("SELECT UNIX_TIMESTAMP()") != [(began,)], "the next second")
    server.execute("RESET MASTER")


def stopped_with(relay: Relay, spec: ErrorSpec) -> ShardmergeError:
    failure = until(relay.failure, "the relay stops for good")
    assert failure.spec is spec, failure
    assert not failure.spec.retryable
    return failure


def test_a_reset_under_a_connected_relay_is_noticed(source: MariaDB, make_relay: MakeRelay) -> None:
    for number in range(30):
        source.execute(f"INSERT INTO d.t (v) VALUES ('{number}')")
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    head = caught_up(relay, source)
    before = end_of(source)
    source.execute("RESET MASTER", "INSERT INTO d.t (v) VALUES ('lost')")
    failure = stopped_with(relay, errors.relay.SOURCE_LOG_RESET)
    for place in (before, end_of(source)):
        assert str(place) in failure.message
    assert "--remove-meta" in failure.workaround
    assert served(relay, end=head)
    with pytest.raises(ShardmergeError) as caught:
        list(relay.subscribe(relay.first().offset, None, None, StopSignal()))
    assert caught.value is failure
    # A task that begins anew, and only it, gives the log up; it has started the relay before it asks.
    relay.start()
    assert relay.failure() is None
    start = end_of(source)
    relay_id = relay.relay_id
    assert relay.ensure_from(start, fresh=True)
    assert relay.relay_id != relay_id
    source.execute("INSERT INTO d.t (v) VALUES ('new')")
    caught_up(relay, source)
    assert len(served(relay)) == 4
    assert not relay.ensure_from(start, fresh=True)  # a healthy log stays


def test_a_binlog_that_grew_again_beyond_the_old_place_is_noticed(source: MariaDB, make_relay: MakeRelay) -> None:
    """The very same statements: the old position is an event's start in the new file too."""
    statements = [f"INSERT INTO d.t (v) VALUES ('{number:06}')" for number in range(30)]
    reset_when_the_clock_has_moved(source)
    source.execute(*statements)
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, source)
    before = end_of(source)
    relay.stop()
    reset_when_the_clock_has_moved(source)
    source.execute(*statements)
    assert end_of(source) == before
    source.execute(*statements)
    relay.start()
    failure = stopped_with(relay, errors.relay.SOURCE_LOG_RESET)
    assert str(before) in failure.message and str(end_of(source)) in failure.message
    assert relay.head().position.file_order() == before.file_order()


def test_a_source_that_lost_its_latest_writes_is_an_error(source: MariaDB, make_relay: MakeRelay) -> None:
    """A machine that fails takes what the source had not synced: those rows exist nowhere at the source."""
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, source)
    kept = end_of(source)
    source.execute("INSERT INTO d.t (v) VALUES ('published'), ('and lost')")
    caught_up(relay, source)
    before = relay.head()
    source.kill()
    path = source.directory / "data" / kept.file
    with path.open("r+b") as file:
        file.truncate(kept.pos)
    source.start()
    failure = until(relay.failure, "the relay stops for good")
    assert failure.spec in (errors.relay.SOURCE_LOG_GONE, errors.relay.SOURCE_LOG_RESET)
    assert str(before.position.pos) in failure.message
    assert "--remove-meta" in failure.workaround
    assert relay.head() == before


def test_a_subscriber_learns_that_the_relay_stopped_and_start_mends_it(source: MariaDB, make_relay: MakeRelay) -> None:
    source.execute("CREATE USER u@'%' IDENTIFIED BY 'p'", "GRANT REPLICATION SLAVE ON *.* TO u@'%'")
    relay = make_relay(source, user="u", password="p")
    relay.ensure_from(START)
    relay.start()
    start = caught_up(relay, source)
    items = relay.subscribe(start, None, None, StopSignal())
    assert isinstance(next(items), AtHead)
    source.execute("ALTER USER u@'%' ACCOUNT LOCK")
    source.execute(*[f"KILL {thread}" for thread in dump_threads(source)])
    with pytest.raises(ShardmergeError) as caught:
        list(items)
    assert caught.value.spec is errors.relay.ACCESS_DENIED
    source.execute("ALTER USER u@'%' ACCOUNT UNLOCK")
    relay.start()
    assert relay.failure() is None
    assert_same(relay, source)
    until(lambda: relay.status().error is None, "the error is forgotten")


def test_two_relays_with_one_server_id_do_not_stop(source: MariaDB, make_relay: MakeRelay, tmp_path: Path) -> None:
    endpoint = Endpoint(source.host, source.port, "root", "")
    relays = [
        Relay(tmp_path / name, "mysql-01", endpoint, "mariadb", unleased(4711), PurgePolicy()) for name in ("a", "b")
    ]
    for relay in relays:
        relay.ensure_from(START)
        relay.start()
    failed_with(relays[0], errors.relay.SOURCE_CONFLICT)
    failed_with(relays[1], errors.relay.SOURCE_CONFLICT)
    source.execute("INSERT INTO d.t (v) VALUES ('both')")
    for relay in relays:
        assert_same(relay, source)
        assert relay.failure() is None
        relay.stop()


def test_a_source_that_freezes_in_the_handshake_does_not_hold_stop(
    source: MariaDB, make_relay: MakeRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = threading.Event()

    def freeze_first(session: Session) -> ServerInfo:
        source.signal(signal.SIGSTOP)
        frozen.set()
        return server_info(session)

    relay = make_relay(source)
    relay.ensure_from(START)
    with monkeypatch.context() as patch:
        patch.setattr(dump, "server_info", freeze_first)
        relay.start()
        assert frozen.wait(60)
        began = time.monotonic()
        try:
            relay.stop()
            assert time.monotonic() - began < 25
        finally:
            source.signal(signal.SIGCONT)
    relay.start()
    assert_same(relay, source)
