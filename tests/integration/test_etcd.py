"""Tests shardmerge.proto.etcd with a real etcd that is killed, stopped and restarted."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Delete, DeletePrefix, Etcd, KeyAbsent, KeyIs, KeyPresent, Lease, Put
from tests.support.etcd import Etcd as Server
from tests.support.ports import free_port
from tests.support.wait import until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
def etcd(server: Server) -> Iterator[Etcd]:
    with server.client() as client:
        client.txn([], [DeletePrefix("/")])
        yield client


def test_records_and_prefixes(etcd: Etcd) -> None:
    assert etcd.get("/a/1") is None
    revision = etcd.put("/a/1", b"one")
    etcd.put("/a/2", "zwei \u2713".encode())
    etcd.put("/ab", b"no")
    record = etcd.get("/a/1")
    assert record is not None
    assert (record.key, record.value, record.mod_revision) == ("/a/1", b"one", revision)
    snapshot = etcd.get_prefix("/a/")
    assert [record.key for record in snapshot.records] == ["/a/1", "/a/2"]
    assert snapshot.revision == revision + 2
    etcd.delete("/a/1")
    assert etcd.get("/a/1") is None


def test_transaction_applies_all_or_nothing(etcd: Etcd) -> None:
    first = etcd.txn([KeyAbsent("/t/a")], [Put("/t/a", b"1"), Put("/t/b", b"1")])
    assert first.ok
    assert not etcd.txn([KeyAbsent("/t/a")], [Put("/t/b", b"2")]).ok
    assert not etcd.txn([KeyPresent("/t/none")], [Put("/t/b", b"2")]).ok
    assert etcd.get_prefix("/t/").records[1].value == b"1"
    second = etcd.txn([KeyIs("/t/a", first.revision), KeyPresent("/t/b")], [Put("/t/a", b"3"), Delete("/t/b")])
    assert second.ok
    assert second.revision == first.revision + 1
    assert not etcd.txn([KeyIs("/t/a", first.revision)], [Put("/t/a", b"4")]).ok
    assert [(record.key, record.value) for record in etcd.get_prefix("/t/").records] == [("/t/a", b"3")]


def test_refusal_is_not_retryable(etcd: Etcd) -> None:
    with pytest.raises(ShardmergeError) as caught:
        etcd.txn([], [Put("/twice", b"1"), Put("/twice", b"2")])
    assert caught.value.spec is errors.master.ETCD_REFUSED
    assert not caught.value.spec.retryable


def _lease_with_record(etcd: Etcd) -> Lease | None:
    """Return a short lease with a record; None if this process was not scheduled for so long that the lease has
    expired."""
    lease = etcd.lease(1)
    try:
        etcd.put("/l/me", b"here", lease.id)
    except ShardmergeError as error:
        assert error.spec is errors.master.LEASE_LOST, error
        return None
    return lease


@pytest.mark.turns
def test_lease_is_renewed(etcd: Etcd) -> None:
    def outlives_its_time() -> bool:
        """Return False if the lease was not renewed because this process was not scheduled; the test retries then."""
        lease = until(lambda: _lease_with_record(etcd), "a lease with a record")
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 2.5 * lease.ttl or lease.lost.is_set(), "several times the TTL")
        record = etcd.get("/l/me")
        alive = lease.alive
        assert record is not None or not alive
        lease.revoke()
        return alive

    until(outlives_its_time, "a lease lives on for several times its TTL")


def test_lease_is_revoked(etcd: Etcd) -> None:
    lease = etcd.lease(600)
    etcd.put("/l/me", b"here", lease.id)
    lease.revoke()
    assert etcd.get("/l/me") is None
    assert lease.lost.is_set()
    assert not lease.alive


def test_lease_that_is_not_renewed_takes_its_records_with_it(etcd: Etcd) -> None:
    lease = until(lambda: _lease_with_record(etcd), "a lease with a record")
    lease.abandon()
    until(lambda: etcd.get("/l/me") is None, "the record expires")
    assert not lease.alive
    with pytest.raises(ShardmergeError) as caught:
        etcd.put("/l/me", b"again", lease.id)
    assert caught.value.spec is errors.master.LEASE_LOST


def test_lease_ended_by_another_process_is_noticed(etcd: Etcd) -> None:
    lease = etcd.lease(2)
    etcd.revoke(lease.id)
    assert lease.lost.wait(300)


def test_lease_is_lost_before_a_silent_etcd_could_expire_it(own_server: Server) -> None:
    with own_server.client() as etcd:

        def lost_in_time() -> bool:
            """Return False if this process was not scheduled in time; the test retries with a new lease."""
            lease = etcd.lease(3)
            own_server.signal(signal.SIGSTOP)
            stopped_at = time.monotonic()
            assert lease.lost.wait(300)
            seconds = time.monotonic() - stopped_at
            own_server.signal(signal.SIGCONT)
            etcd.get("/")  # it answers again
            return seconds <= 3.5

        until(lost_in_time, "a lease is lost in time")


def test_lease_and_its_record_survive_a_restart_of_etcd(own_server: Server) -> None:
    with own_server.client() as etcd:
        lease = etcd.lease(600)
        etcd.put("/l/me", b"here", lease.id)
        own_server.kill()
        with pytest.raises(ShardmergeError) as caught, own_server.client(timeout=0.5) as impatient:
            impatient.get("/l/me")
        assert caught.value.spec is errors.master.ETCD_UNAVAILABLE
        own_server.start()
        assert etcd.get("/l/me") is not None
        assert lease.alive
        assert etcd.keep_alive(lease.id, 60.0) > 0
        lease.abandon()


def test_second_endpoint_is_used_when_the_first_is_dead(server: Server) -> None:
    with Etcd((f"127.0.0.1:{free_port()}", server.endpoint), timeout=60.0) as etcd:
        assert etcd.txn([], [Put("/second", b"1")]).ok
        assert etcd.get("/second") is not None


class _Watcher:
    """Runs a watch in a thread; every report goes to a queue."""

    def __init__(self, etcd: Etcd, prefix: str, start_revision: int = 0, resync: float = 3600.0) -> None:
        self.stop = threading.Event()
        self.seen: queue.Queue[None] = queue.Queue()
        self._watch = etcd.watch(prefix, start_revision, self.stop, resync)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        for _ in self._watch:
            self.seen.put(None)

    def reported(self) -> bool:
        try:
            self.seen.get(timeout=300)
        except queue.Empty:
            return False
        return True

    def end(self) -> None:
        self.stop.set()
        self.thread.join(300)
        assert not self.thread.is_alive()


def test_watch_reports_changes_under_its_prefix_only(etcd: Etcd) -> None:
    watcher = _Watcher(etcd, "/w/")
    try:
        assert watcher.reported()  # the watch is established
        etcd.put("/elsewhere", b"1")
        etcd.put("/w/a", b"1")
        assert watcher.reported()
        etcd.delete("/w/a")
        assert watcher.reported()
        assert watcher.seen.empty()
    finally:
        watcher.end()


def test_watch_from_a_revision_reports_what_came_after_it(etcd: Etcd) -> None:
    revision = etcd.put("/w/a", b"1")
    etcd.put("/w/a", b"2")
    behind = _Watcher(etcd, "/w/", revision)
    try:
        assert behind.reported()
    finally:
        behind.end()


def test_watch_ticks_when_nothing_happens(etcd: Etcd) -> None:
    watcher = _Watcher(etcd, "/w/", etcd.get_prefix("/w/").revision, resync=0.3)
    try:
        assert watcher.reported()
        assert watcher.reported()
    finally:
        watcher.end()


@pytest.mark.turns
def test_watch_survives_kill_and_restart_of_etcd(own_server: Server) -> None:
    with own_server.client() as etcd:
        watcher = _Watcher(etcd, "/w/")
        try:
            assert watcher.reported()
            for _ in range(2):
                own_server.kill()
                own_server.start()
                assert watcher.reported(), "a report that the watch stands again"
                etcd.put("/w/a", b"1")
                assert watcher.reported(), "a change after the restart"
        finally:
            watcher.end()


def test_watch_ends_with_its_client(server: Server) -> None:
    etcd = server.client()
    watcher = _Watcher(etcd, "/w/")
    assert watcher.reported()
    etcd.close()
    watcher.thread.join(300)
    assert not watcher.thread.is_alive()
