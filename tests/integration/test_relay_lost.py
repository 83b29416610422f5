"""Tests connections, servers, relays and disks that end or fail under a relay: nothing is lost or repeated."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, ServerInfo, Session, server_info
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.fetch import dump_connection
from shardmerge.worker.relay.model import AtHead, PurgePolicy
from shardmerge.worker.relay.relay import Relay
from tests.integration.mariadb_relay_rig import (
    SMALL,
    START,
    MakeRelay,
    Writer,
    assert_same,
    caught_up,
    failed_with,
    make_relay,
    open_relay,
    served,
    source,
)
from tests.integration.relay_rig import cut_dumps
from tests.support.disk import fill, small_disk
from tests.support.mariadb import MariaDB
from tests.support.server_ids import unleased
from tests.support.wait import until

__all__ = ["make_relay", "source"]


def test_cut_connections_lose_and_repeat_nothing(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    with Writer(source) as writer:
        killed: set[int] = set()
        for _ in range(6):
            killed |= cut_dumps(source, killed)
            done = writer.done
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


def _size(directory: Path) -> int:
    """Return the bytes in all files; a starting relay may just be removing one of them."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


@pytest.mark.turns
def test_a_relay_killed_at_any_time_continues_where_it_was(
    source: MariaDB, make_relay: MakeRelay, tmp_path: Path
) -> None:
    open_relay(source, tmp_path / "relay").ensure_from(START)
    spawn = multiprocessing.get_context("spawn")
    with Writer(source) as writer:
        for _ in range(5):
            before = _size(tmp_path / "relay")
            process = spawn.Process(target=_copy_until_killed, args=(source.port, tmp_path / "relay"))
            process.start()
            until(lambda before=before: _size(tmp_path / "relay") > before + 10_000, "the relay copies")
            done = writer.done
            until(lambda done=done: writer.done > done + 50, "the writer goes on")
            process.kill()
            process.join()
    relay = make_relay(source)
    kept = relay.head()
    assert kept.offset > RelayOffset(1, 10_000)
    relay.start()
    assert_same(relay, source)


def test_a_full_disk_pauses_and_continues_by_itself(source: MariaDB, make_relay: MakeRelay, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 24) as disk:
        relay = make_relay(source, disk / "relay")
        relay.ensure_from(START)
        relay.start()
        caught_up(relay, source)
        ballast = fill(disk, leave_bytes=300_000)
        # A limited amount: all of it has room when the ballast is removed.
        for _ in range(200):
            source.execute("INSERT INTO d.t (v) VALUES (REPEAT('w', 3000)), (REPEAT('v', 2000))")
        error = failed_with(relay, errors.relay.DISK_FULL)
        assert str(disk / "relay") in error.message
        until(lambda: relay.status().stage == Stage.STAGE_PAUSED, "the relay pauses")
        before = served(relay)  # events that were written can be read
        ballast.unlink()
        assert_same(relay, source)
        assert served(relay)[: len(before)] == before
        until(lambda: relay.status().error is None, "the error is forgotten")
        relay.stop()


def test_a_subscriber_learns_that_the_relay_stopped_and_start_mends_it(source: MariaDB, make_relay: MakeRelay) -> None:
    source.execute("CREATE USER u@'%' IDENTIFIED BY 'p'", "GRANT REPLICATION SLAVE ON *.* TO u@'%'")
    relay = make_relay(source, user="u", password="p")
    relay.ensure_from(START)
    relay.start()
    start = caught_up(relay, source)
    items = relay.subscribe(start, None, None, StopSignal())
    assert isinstance(next(items), AtHead)
    source.execute("ALTER USER u@'%' ACCOUNT LOCK")
    for thread in source.dump_threads():
        source.kill_thread(thread)
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


@pytest.mark.turns
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
        patch.setattr(dump_connection, "server_info", freeze_first)
        relay.start()
        assert frozen.wait(300)
        try:
            # The source does not answer before it is thawed.
            stopping = threading.Thread(target=relay.stop, daemon=True)
            stopping.start()
            stopping.join(300)
            assert not stopping.is_alive()
        finally:
            source.signal(signal.SIGCONT)
    relay.start()
    assert_same(relay, source)


def _remove(directory: Path) -> None:
    shutil.rmtree(directory)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


def _remove_and_make(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


@pytest.mark.parametrize("destroy", [_remove, _empty, _remove_and_make])
def test_a_log_that_is_removed_under_the_relay_is_noticed_and_fetched_again(
    source: MariaDB, make_relay: MakeRelay, tmp_path: Path, destroy: Callable[[Path], None]
) -> None:
    relay = make_relay(source, segment_bytes=1 << 30)  # no further file would be made
    relay.ensure_from(START)
    relay.start()
    source.execute("INSERT INTO d.t (v) VALUES ('before')")
    before = caught_up(relay, source)
    items = relay.subscribe(before, None, None, StopSignal())
    assert isinstance(next(items), AtHead)
    relay_id, began = relay.relay_id, time.monotonic()
    destroy(tmp_path / "relay")
    error = until(relay.failure, "the loss is noticed", 10)
    assert time.monotonic() - began < 5
    assert error.spec is errors.relay.RELAY_REMOVED
    assert str(tmp_path / "relay") in error.message
    assert str(tmp_path / "relay") in error.workaround
    with pytest.raises(ShardmergeError) as caught:
        list(items)
    assert caught.value.spec is errors.relay.RELAY_REMOVED
    source.execute("INSERT INTO d.t (v) VALUES ('after')")
    relay.start()  # as a subtask's next run does
    assert relay.ensure_from(START)
    assert relay.relay_id != relay_id
    assert_same(relay, source)
    assert relay.first().offset.segment > before.segment, "no offset of the old log is one of the new log"
    assert relay.failure() is None


def test_nothing_that_is_left_of_a_log_is_removed(source: MariaDB, make_relay: MakeRelay, tmp_path: Path) -> None:
    """The segments may hold what the source has purged."""
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    for _ in range(3):
        source.execute("INSERT INTO d.t (v) VALUES (REPEAT('w', 200000))", "INSERT INTO d.t (v) VALUES ('x')")
    caught_up(relay, source)
    segments = {path.name: path.read_bytes() for path in (tmp_path / "relay").glob("*.relay")}
    newest = max(segments)
    (tmp_path / "relay" / newest).unlink()
    for _ in range(2):
        until(relay.failure, "the loss is noticed", 10)
        relay.start()
        relay.ensure_from(START)
    error = until(relay.failure, "the loss is noticed", 10)
    assert error.spec is errors.relay.RELAY_REMOVED
    del segments[newest]
    assert segments == {path.name: path.read_bytes() for path in (tmp_path / "relay").glob("*.relay")}
    # The way out: stop, move the directory away, start.
    relay.stop()
    (tmp_path / "relay").rename(tmp_path / "away")
    again = make_relay(source)
    again.ensure_from(START)
    again.start()
    assert_same(again, source)


def test_a_file_of_the_log_that_was_replaced_is_noticed(source: MariaDB, make_relay: MakeRelay, tmp_path: Path) -> None:
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    number = caught_up(relay, source).segment
    path = tmp_path / "relay" / f"{number:010d}.relay"
    time.sleep(1.5)  # the relay has looked at it
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    error = until(relay.failure, "it is noticed", 10)
    assert error.spec is errors.relay.RELAY_REMOVED
