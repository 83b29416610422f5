"""Tests that relays of one server never share a server id: it is held in a real etcd while a worker's lease lasts."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.proto import errors, etcd_keys, state_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd as Client
from shardmerge.proto.etcd import Record
from shardmerge.worker.core.mysql.connection import Endpoint, ServerInfo
from shardmerge.worker.core.mysql.target_dialect import parse_dialect
from shardmerge.worker.daemon.registration import Registration
from shardmerge.worker.daemon.source.server_id_lease import ServerIdLease
from shardmerge.worker.relay.model import PurgePolicy
from shardmerge.worker.relay.relay import Relay
from tests.integration.relay_rig import (
    START,
    Servers,
    caught_up,
    create_table,
    failed_with,
    gtids,
    insert,
    served,
    servers,
    written,
)
from tests.integration.ways_out.printed import Operator
from tests.support.cluster import Cluster, source_yaml
from tests.support.database import Database
from tests.support.etcd import Etcd
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import Family

__all__ = ["servers"]

GIVEN = 4711
FIRST = 2**31 + 5
LONG, SHORT = 60.0, 12.0
"""Seconds of a lease: one that must not expire on a busy machine, and one whose end the tests wait for."""
INFO = ServerInfo(
    "mariadb",
    (10, 11, 6),
    "10.11.6-MariaDB",
    1,
    "",
    True,
    "db-1",
    3306,
    parse_dialect("10.11.6-MariaDB", ""),
)


class Worker:
    """The parts of a worker process that hold server ids; registered. ``given`` 0: ids from ``first`` on."""

    def __init__(
        self, client: Client, name: str, source: str, *, given: int = 0, first: int = FIRST, ttl: float = LONG
    ) -> None:
        self.registration = Registration(client, name, "127.0.0.1:1", ttl)
        self.registration.register()
        self.server_id = ServerIdLease(client, self.registration, source, given, first)
        self.source = source
        self.relay: Relay | None = None

    def copy(self, server: Database, directory: Path) -> Relay:
        """Begin to copy the server's binlog."""
        endpoint = Endpoint(server.host, server.port, "root")
        self.relay = Relay(directory, self.source, endpoint, server.flavor, self.server_id, PurgePolicy())
        self.relay.ensure_from(START)
        self.relay.start()
        return self.relay

    def stop(self) -> None:
        if self.relay is not None:
            self.relay.stop()
        self.server_id.release()

    def lose_lease(self, client: Client) -> None:
        """End the lease, and let the worker learn it now, not at its next renewal."""
        lost = self.registration.lost_event()
        record = client.get(etcd_keys.worker(self.registration.name))
        assert lost is not None and record is not None
        client.revoke(record.lease)
        lost.set()
        assert not self.registration.alive


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    made = Etcd(tmp_path_factory.mktemp("etcd")).start()
    yield made
    made.stop()


@pytest.fixture
def client(etcd: Etcd) -> Iterator[Client]:
    with etcd.client() as made:
        yield made


@pytest.fixture
def make_worker(client: Client) -> Iterator[Callable[..., Worker]]:
    """``make_worker(name, source, …)`` returns a worker that resigns after the test."""
    made: list[Worker] = []

    def make(name: str, source: str, *, given: int = 0, first: int = FIRST, ttl: float = LONG) -> Worker:
        made.append(Worker(client, name, source, given=given, first=first, ttl=ttl))
        return made[-1]

    yield make
    for worker in made:
        if worker.relay is not None:
            worker.relay.stop()
        worker.registration.resign()


def held(client: Client) -> dict[int, Record]:
    """Return the records by server id."""
    found = client.get_prefix(etcd_keys.SERVER_IDS).records
    return {int(etcd_keys.names(record.key, etcd_keys.SERVER_IDS)[1]): record for record in found}


def holder(record: Record) -> tuple[str, str]:
    value = etcd_keys.decode(state_pb2.ServerIdRecord, record.value, record.key)
    return value.worker, value.source_id


def copies_all(relay: Relay, server: Database) -> None:
    caught_up(relay, server)
    assert gtids(served(relay)) == gtids(written(server))


def refused(ask: Callable[[], object], spec: errors.ErrorSpec) -> str:
    with pytest.raises(ShardmergeError) as caught:
        ask()
    assert caught.value.spec is spec
    return caught.value.message


def test_relays_that_would_choose_the_same_id_choose_different_ones_and_both_continue(
    servers: Servers, client: Client, make_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    server = servers.server("source")
    create_table(server)
    workers = [make_worker(f"w{number}", f"s{number}") for number in (1, 2)]
    relays = [worker.copy(server, tmp_path / worker.source) for worker in workers]
    until(lambda: len(server.dump_threads()) == 2, "both dump")
    dumps = server.dump_threads()
    found = held(client)
    assert sorted(found) == [FIRST, FIRST + 1]
    assert sorted(map(holder, found.values())) == [("w1", "s1"), ("w2", "s2")]
    insert(server, 50)
    for relay in relays:
        copies_all(relay, server)
        assert relay.status().error is None
    assert server.dump_threads() == dumps, "neither has ended the other"
    # A lost connection is opened again with the same id, though a lower one is free now.
    upper = next(worker for worker in workers if holder(found[FIRST + 1])[0] == worker.registration.name)
    lower = next(worker for worker in workers if worker is not upper)
    lower.stop()
    assert list(held(client)) == [FIRST + 1]
    until(lambda: len(server.dump_threads()) == 1, "the server has noticed")
    server.execute(*[f"KILL {thread}" for thread in server.dump_threads()])
    insert(server, 5)
    assert upper.relay is not None
    copies_all(upper.relay, server)
    assert list(held(client)) == [FIRST + 1]
    upper.stop()
    assert held(client) == {}


def test_a_given_id_that_another_source_has_stops_the_relay_and_names_who_has_it(
    servers: Servers, client: Client, make_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    server = servers.server("source")
    create_table(server)
    first, second = make_worker("w1", "s1", given=GIVEN, ttl=SHORT), make_worker("w2", "s2", given=GIVEN)
    has = first.copy(server, tmp_path / "s1")
    copies_all(has, server)
    dumps = server.dump_threads()
    wants = second.copy(server, tmp_path / "s2")
    waits = failed_with(wants, errors.relay.SERVER_ID_STILL_HELD)
    assert waits.spec.retryable
    assert wants.failure() is None, "the holder may just have died"
    error = until(wants.failure, "it gives up")
    assert (error.spec, error.code) == (errors.relay.SERVER_ID_TAKEN, 20017)
    assert not error.spec.retryable
    assert all(part in error.message for part in ("source s2", str(GIVEN), "worker w1", "source s1"))
    assert "operate-source stop" in error.workaround
    assert server.dump_threads() == dumps, "the other one's was not ended"
    first.stop()
    wants.start()
    insert(server, 5)
    copies_all(wants, server)
    assert {server_id: holder(record) for server_id, record in held(client).items()} == {GIVEN: ("w2", "s2")}


def test_a_source_that_moves_waits_for_the_worker_it_leaves(
    servers: Servers, client: Client, make_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    server = servers.server("source")
    create_table(server)
    before, after = (make_worker(name, "s1", given=GIVEN) for name in ("w1", "w2"))
    copies_all(before.copy(server, tmp_path / "w1"), server)
    relay = after.copy(server, tmp_path / "w2")
    assert "worker w1 for source s1" in failed_with(relay, errors.relay.SERVER_ID_STILL_HELD).message
    before.stop()
    insert(server, 5)
    copies_all(relay, server)
    assert holder(held(client)[GIVEN]) == ("w2", "s1")


def _hold_until_killed(endpoint: str, port: int, directory: Path, flavor: str) -> None:
    client = Client((endpoint,))
    worker = Worker(client, "killed", "s1", given=GIVEN, ttl=SHORT)
    server = Servers(directory, flavor).server("nowhere", start=False)
    server.port = port
    worker.copy(server, directory / "relay")
    threading.Event().wait()


def test_the_id_of_a_killed_worker_is_free_after_its_lease(
    servers: Servers, etcd: Etcd, client: Client, make_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    server = servers.server("source")
    create_table(server)
    process = multiprocessing.get_context("spawn").Process(
        target=_hold_until_killed, args=(etcd.endpoint, server.port, tmp_path / "killed", servers.flavor)
    )
    process.start()
    try:
        until(lambda: GIVEN in held(client) and server.dump_threads(), "it dumps")
    finally:
        process.kill()
        process.join()
    worker = make_worker("w2", "s2", given=GIVEN)
    relay = worker.copy(server, tmp_path / "s2")
    insert(server, 5)
    copies_all(relay, server)
    assert relay.failure() is None
    assert {server_id: holder(record) for server_id, record in held(client).items()} == {GIVEN: ("w2", "s2")}


@pytest.mark.parametrize("given", [0, GIVEN])
def test_after_the_lease_was_lost_the_id_is_held_again_before_the_next_dump(
    servers: Servers, client: Client, make_worker: Callable[..., Worker], tmp_path: Path, given: int
) -> None:
    server = servers.server("source")
    create_table(server)
    worker = make_worker("w1", "s1", given=given)
    relay = worker.copy(server, tmp_path / "s1")
    copies_all(relay, server)
    [(server_id, before)] = held(client).items()

    worker.lose_lease(client)
    assert held(client) == {}
    insert(server, 5)
    copies_all(relay, server)  # the dump continues
    worker.registration.register()
    worker.server_id.renew()
    [(again, record)] = held(client).items()
    assert (again, holder(record)) == (server_id, ("w1", "s1"))
    assert record.lease != before.lease

    worker.lose_lease(client)
    assert held(client) == {}
    dumps = server.dump_threads()
    server.execute(*[f"KILL {thread}" for thread in dumps])
    insert(server, 5)
    failed_with(relay, errors.worker.LEASE_LOST)
    until(lambda: not server.dump_threads(), "no dump is there without a lease")
    worker.registration.register()
    copies_all(relay, server)
    assert list(held(client)) == [server_id]


def test_an_id_that_another_replica_took_meanwhile_is_not_taken_back(
    client: Client, make_worker: Callable[..., Worker]
) -> None:
    first, second = make_worker("w1", "s1"), make_worker("w2", "s2")
    assert first.server_id(INFO) == FIRST
    first.lose_lease(client)
    assert second.server_id(INFO) == FIRST
    first.registration.register()
    first.server_id.renew()
    assert {server_id: holder(record) for server_id, record in held(client).items()} == {FIRST: ("w2", "s2")}
    assert first.server_id(INFO) == FIRST + 1
    first.server_id.release()
    assert list(held(client)) == [FIRST], "of its own only"


def test_an_id_is_kept_though_a_lower_one_is_free(client: Client, make_worker: Callable[..., Worker]) -> None:
    first, second = make_worker("w1", "s1"), make_worker("w2", "s2")
    assert (first.server_id(INFO), second.server_id(INFO)) == (FIRST, FIRST + 1)
    first.server_id.release()
    second.lose_lease(client)
    second.registration.register()
    assert second.server_id(INFO) == FIRST + 1
    assert second.server_id(replace(INFO, host="db-2")) == FIRST + 1, "after a fail-over, too"
    assert second.server_id(replace(INFO, server_id=FIRST + 1)) == FIRST, "but never the server's own"


def test_many_that_ask_at_once_get_an_id_each(client: Client, make_worker: Callable[..., Worker]) -> None:
    workers = [make_worker(f"w{number}", f"s{number}") for number in range(12)]
    together = threading.Barrier(len(workers))
    got: list[int] = []

    def ask(worker: Worker) -> None:
        together.wait()
        got.append(worker.server_id(INFO))

    threads = [threading.Thread(target=ask, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(held(client)) == list(range(FIRST, FIRST + len(workers)))


def test_a_worker_holds_one_id_and_of_another_server_the_same_number_is_free(
    client: Client, make_worker: Callable[..., Worker]
) -> None:
    first, second = make_worker("w1", "s1", given=GIVEN), make_worker("w2", "s2", given=GIVEN)
    assert first.server_id(INFO) == second.server_id(replace(INFO, host="db-2")) == GIVEN
    records = client.get_prefix(etcd_keys.SERVER_IDS).records
    assert sorted(map(holder, records)) == [("w1", "s1"), ("w2", "s2")]
    # The same after a fail-over.
    assert first.server_id(replace(INFO, host="db-3")) == GIVEN
    servers = {
        etcd_keys.names(record.key, etcd_keys.SERVER_IDS)[0]
        for record in client.get_prefix(etcd_keys.SERVER_IDS).records
    }
    assert servers == {f"server-id 1 at {host}:3306" for host in ("db-2", "db-3")}
    derived = make_worker("w3", "s3")
    assert derived.server_id(INFO) == FIRST
    assert derived.server_id(replace(INFO, server_id=FIRST)) == FIRST + 1, "never the server's own"


def test_a_newer_process_of_the_name_takes_the_id_over(client: Client, make_worker: Callable[..., Worker]) -> None:
    old = make_worker("w1", "s1", given=GIVEN, ttl=60.0)
    assert old.server_id(INFO) == GIVEN
    new = make_worker("w1", "s1", given=GIVEN)
    assert new.server_id(INFO) == GIVEN
    lease = held(client)[GIVEN].lease
    other = make_worker("w2", "s2", given=GIVEN)
    assert "w1" in refused(lambda: other.server_id(INFO), errors.relay.SERVER_ID_STILL_HELD)
    # The old process, which relies on its registration, gets nothing by a new request and removes nothing.
    refused(lambda: old.server_id(replace(INFO, host="db-2")), errors.worker.LEASE_LOST)
    old.server_id.release()
    assert held(client)[GIVEN].lease == lease


@pytest.mark.parametrize("way", ["file", pytest.param("stop", marks=pytest.mark.grid)])
def test_workers_hold_what_their_relays_use(
    way: str, make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> None:
    """The printed ways out of 20017 are followed: another source file, or the other source is stopped."""
    source, target = make_server("source"), make_server("target")
    cluster = make_cluster(workers=2, worker_settings={"keepalive-ttl": int(SHORT)})
    families = {name: Family(name, ((name, source),), target) for name in ("east", "west")}
    for name, family in families.items():
        family.create(50)
        cluster.create_source(name, source, extra=f"server-id: {GIVEN}\n")
    cluster.start_task(families["east"].task())
    cluster.wait_replicating("east")
    first = cluster.worker_of("east").name
    with cluster.etcd.client() as client:
        before = held(client)[GIVEN]
        assert holder(before) == (first, "east")
        cluster.start_task(families["west"].task())
        operator = Operator(cluster, "west", "")
        printed = operator.stopped(20017, "west")
        assert first in printed.message and "east" in printed.message

        client.revoke(before.lease)
        until(lambda: GIVEN in held(client), "it is held again")
        assert holder(held(client)[GIVEN]) == (first, "east")
        cluster.wait_replicating("east")

        if way == "file":
            path = cluster.write("west.yaml", source_yaml("west", source))
            operator.runs(printed, "operate-source update", source_file=path)
            wanted = {("east", True), ("west", False)}
        else:
            cluster.dmctl("stop-task", "east")
            operator.runs(printed, "operate-source stop", source_name="east")
            assert until(lambda: not held(client), "it is released")
            operator.runs(printed, "resume-task")
            wanted = {("west", True)}
        cluster.wait_replicating("west")
        assert {(holder(record)[1], number == GIVEN) for number, record in held(client).items()} == wanted
    insert_into = (
        "INSERT INTO {}_01.order_01 (customer, amount, state, token, created) VALUES ('x', 1, 'new', '', NOW())"
    )
    source.execute(*(insert_into.format(name) for name, _ in wanted))
    for name, _ in wanted:
        cluster.wait_caught_up(name, {name: source})
        assert families[name].verdict().differences == 0
