"""Tests the relay of a real MariaDB: how it copies, serves, locates and purges."""

from __future__ import annotations

import statistics
import threading
import time

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import AtHead, AtStatement, BlockData, PurgePolicy
from tests.integration.mariadb_relay_rig import (
    START,
    MakeRelay,
    Writer,
    assert_same,
    caught_up,
    end_of,
    make_relay,
    served,
    source,
)
from tests.support.mariadb import MariaDB
from tests.support.wait import until

__all__ = ["make_relay", "source"]


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
        # Larger than a packet of the protocol (16 MiB): it arrives in several packets.
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

    def median_lag() -> float:
        """Return the median of fifty transactions, each sent to an idle relay."""
        lags: list[float] = []
        for _ in range(50):
            number = len(arrived)
            cursor.execute("INSERT INTO t (v) VALUES ('x')")
            committed = time.perf_counter()
            until(lambda number=number: len(arrived) > number, "the transaction arrives", every=0.001)
            lags.append(arrived[number] - committed)
        return statistics.median(lags)

    with connection.cursor() as cursor:
        assert idle.wait(300)
        # The machine may be slow for minutes, so repeat the measurement.
        until(lambda: median_lag() < 0.010, "transactions arrive within milliseconds")
    connection.close()
    stop.set()
    reader.join()


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

    def cost() -> float:
        """Return the cost of three seconds."""
        before, since = time.process_time(), time.monotonic()
        until(lambda: time.monotonic() > since + 3, "three idle seconds", every=0.5)
        return time.process_time() - before

    until(lambda: cost() < 0.6, "it costs almost nothing")
    stop.set()
    for reader in readers:
        reader.join()


def test_locate_makes_a_watermark_an_offset(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    early = end_of(source)
    source.execute("INSERT INTO d.t (v) VALUES ('low')")
    low = end_of(source)
    relay.ensure_from(low)
    relay.start()
    assert relay.locate(low, 300, StopSignal()) >= relay.first().offset
    with Writer(source) as writer:
        until(lambda: writer.done > 30, "rows")
        middle = end_of(source)
        offset = relay.locate(middle, 300, StopSignal())
        # A transaction, not the end of the file, must follow `middle`: of two further ones, the second began after it.
        done = writer.done
        until(lambda: writer.done > done + 1, "rows behind it")
        source.execute("FLUSH BINARY LOGS")
        until(lambda: writer.done > 60, "more rows")
    # MariaDB writes an event of its own a moment after a new file has begun: it must not come after this end.
    end = caught_up(relay, source)
    assert served(relay, end=offset) + served(relay, start=offset, end=end) == served(relay, end=end)
    assert relay.opened(offset).position.file_order() == middle.file_order()
    with pytest.raises(ShardmergeError) as caught:
        relay.locate(early, 300, StopSignal())
    assert caught.value.spec is errors.relay.POSITION_BEFORE_RELAY
    assert relay.locate(early, 300, StopSignal(), first_if_before=True) == relay.first().offset
    # Positions are those of the server: the first event after `middle` begins there.
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


@pytest.mark.parametrize("by_gtid", [False, True])
def test_a_position_that_the_source_has_purged_replaces_no_log_that_is_needed(
    source: MariaDB, make_relay: MakeRelay, *, by_gtid: bool
) -> None:
    def end() -> SourcePosition:
        here = end_of(source)
        if not by_gtid:
            return here
        [(gtid_set,)] = source.query(f"SELECT BINLOG_GTID_POS('{here.file}', {here.pos})")
        return SourcePosition("", 0, str(gtid_set))

    source.execute("INSERT INTO d.t (v) VALUES ('before')")
    lost = end()
    source.execute("INSERT INTO d.t (v) VALUES ('purged')")
    relay = make_relay(source)
    relay.ensure_from(end())
    relay.start()
    caught_up(relay, source)
    source.purge()
    source.execute("INSERT INTO d.t (v) VALUES ('needed')")
    needed = caught_up(relay, source)
    relay_id = relay.relay_id
    relay.set_needed(lambda: needed)
    with pytest.raises(ShardmergeError) as caught:
        relay.ensure_from(lost)
    assert caught.value.spec is (errors.relay.SOURCE_GTIDS_GONE if by_gtid else errors.relay.SOURCE_LOG_GONE)
    assert (relay.relay_id, relay.failure()) == (relay_id, None)
    source.execute("INSERT INTO d.t (v) VALUES ('still fetched')")
    assert caught_up(relay, source) > needed


def test_purge_never_takes_what_a_checkpoint_needs(source: MariaDB, make_relay: MakeRelay) -> None:
    """Tests I7."""
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
    assert relay.purge_now() == []  # no needed position is set yet
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
    # The first four bytes of a segment are not an event.
    size = relay.status().bytes_on_disk - 4 * relay.head().offset.segment
    until(lambda: set(lengths.values()) == {size}, f"every reader has {size} bytes")
    stop.set()
    for thread in threads:
        thread.join()
