"""Provides a relay of a real server of either flavor, the events it serves, and those in the server's own files."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.binlog.events import EventType, FormatDescription
from shardmerge.worker.binlog.gtid_events import parse_gtid
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.fetch.server_id import derived
from shardmerge.worker.relay.model import BlockData, PurgePolicy, ReachedUntil
from shardmerge.worker.relay.relay import Relay
from tests.support.binlog import read_binlog, split
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.pair import KINDS
from tests.support.server_ids import unleased
from tests.support.wait import until

SMALL = 256 * 1024
START = SourcePosition("mysql-bin.000001", 4)
GTIDS = (EventType.GTID, EventType.GTID_TAGGED, EventType.ANONYMOUS_GTID, EventType.MARIADB_GTID)


def open_relay(server: Database, directory: Path, segment_bytes: int = SMALL, user: str = "root") -> Relay:
    """Return an opened, not started relay."""
    endpoint = Endpoint(server.host, server.port, user)
    return Relay(
        directory, "mysql-01", endpoint, server.flavor, unleased(derived(directory)), PurgePolicy(), segment_bytes
    )


def cut_dumps(server: Database, cut_before: set[int]) -> set[int]:
    """End the dumps that are not in ``cut_before``, and return their numbers. They are the relay's own, and the short
    one that compares the last events before and ends by itself."""
    threads = until(lambda: {at for at in server.dump_threads() if at not in cut_before}, "a new dump")
    for thread in threads:
        server.kill_thread(thread)
    return threads


class Servers:
    """Servers of one flavor and their relays, which end after the test."""

    def __init__(self, directory: Path, flavor: str) -> None:
        self.directory = directory
        self.flavor = flavor
        self._servers: list[Database] = []
        self._relays: list[Relay] = []

    @property
    def is_mariadb(self) -> bool:
        return self.flavor == "mariadb"

    def server(self, name: str, *options: str, start: bool = True) -> Database:
        number = 101 + len(self._servers)
        log_updates = "--log-slave-updates" if self.is_mariadb else "--log-replica-updates"
        kind = MariaDB if self.is_mariadb else MySQL
        made = kind(self.directory / name, number, (log_updates, "--skip-slave-start", *options))
        self._servers.append(made)
        return made.start() if start else made

    def relay(self, server: Database, name: str = "relay", segment_bytes: int = SMALL) -> Relay:
        made = open_relay(server, self.directory / name, segment_bytes)
        self._relays.append(made)
        return made

    def follow(self, replica: Database, source: Database) -> None:
        """Let ``replica`` apply all that ``source`` writes, from the beginning, by GTID."""
        if self.is_mariadb:
            replica.execute(
                f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {source.port}, MASTER_USER = 'root', "
                "MASTER_USE_GTID = slave_pos",
                "START SLAVE",
            )
        else:
            replica.execute(
                f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {source.port}, "
                "SOURCE_USER = 'root', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
                "START REPLICA",
            )

    def caught_up(self, replica: Database, source: Database) -> None:
        until(lambda: executed(replica) == executed(source), "the replica has applied everything")

    def detach(self, replica: Database) -> None:
        """Stop the replica's replication."""
        replica.execute("STOP SLAVE" if self.is_mariadb else "STOP REPLICA")

    def promote(self, replica: Database) -> None:
        """Let the server accept writes, as if it had never been a replica."""
        self.detach(replica)
        replica.execute("RESET SLAVE ALL" if self.is_mariadb else "RESET REPLICA ALL")

    def stop(self) -> None:
        for relay in self._relays:
            relay.stop()
        for server in self._servers:
            server.stop()


@pytest.fixture(params=list(KINDS))
def servers(tmp_path: Path, request: pytest.FixtureRequest, watch_logs: Callable[[Path], None]) -> Iterator[Servers]:
    watch_logs(tmp_path)
    made = Servers(tmp_path, str(request.param))
    yield made
    made.stop()


@pytest.fixture
def mysql(tmp_path: Path, watch_logs: Callable[[Path], None]) -> Iterator[Servers]:
    """Provide servers for tests of what only MySQL has."""
    watch_logs(tmp_path)
    made = Servers(tmp_path, "mysql")
    yield made
    made.stop()


def executed(server: Database) -> str:
    """Return the server's GTID set."""
    variable = "gtid_current_pos" if server.flavor == "mariadb" else "gtid_executed"
    return str(server.query(f"SELECT @@GLOBAL.{variable}")[0][0]).replace("\n", "")


def end_of(server: Database) -> SourcePosition:
    identity = f"server-id {server.server_id}"
    if server.flavor == "mysql":
        identity = str(server.query("SELECT @@server_uuid")[0][0])
    return SourcePosition(*server.binlog_end(), server=identity)


def caught_up(relay: Relay, server: Database, seconds: float = 300) -> RelayOffset:
    """Return the relay offset of the binlog's end. Repeats the query, as the program does, when the log was started
    anew or has not reached the server's end yet."""

    def found() -> RelayOffset | None:
        try:
            return relay.locate(end_of(server), seconds, StopSignal())
        except ShardmergeError as error:
            if error.spec not in (errors.relay.RELAY_RESTARTED, errors.relay.POSITION_ELSEWHERE):
                raise
        return None

    return until(found, "the relay has caught up", seconds)


def blocks(relay: Relay, start: RelayOffset | None = None, end: RelayOffset | None = None) -> list[BlockData]:
    items = list(relay.subscribe(start or relay.first().offset, end or relay.head().offset, None, StopSignal()))
    assert isinstance(items[-1], ReachedUntil)
    return [item for item in items if isinstance(item, BlockData)]


def served(relay: Relay, start: RelayOffset | None = None, end: RelayOffset | None = None) -> list[bytes]:
    return [made for block in blocks(relay, start, end) for made in split(block.events)]


def gtids(events: list[bytes], *, checksum: bool = True) -> list[str]:
    """Return the GTIDs of the transactions among the events, in their order."""
    return [parse_gtid(made, checksum).text for made in events if made[4] in GTIDS]


def written(server: Database) -> list[bytes]:
    """Return every event in the server's own files, except format descriptions."""
    found: list[bytes] = []
    for name, *_ in server.query("SHOW BINARY LOGS"):
        binlog = read_binlog(server.directory / "data" / str(name))
        assert FormatDescription.parse(binlog.format_description).checksum
        found += binlog.each()
    return found


def failed_with(relay: Relay, spec: ErrorSpec) -> ShardmergeError:
    def look() -> ShardmergeError | None:
        error = relay.status().error
        return error if error is not None and error.spec is spec else None

    return until(look, f"the relay's error is {spec.name}")


def create_table(server: Database) -> None:
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200))")


def insert(server: Database, count: int, text: str = "x") -> None:
    """Commit so many transactions."""
    connection = server.connect("d")
    with connection.cursor() as cursor:
        for _ in range(count):
            cursor.execute("INSERT INTO t (v) VALUES (%s)", (text,))
    connection.close()


class Writer(AbstractContextManager["Writer"]):
    """Commits small transactions on some connections until stopped."""

    def __init__(self, server: Database, connections: int = 1) -> None:
        self._server = server
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(connections)]
        self.done = 0

    def __enter__(self) -> Writer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection = self._server.connect("d")
        with connection.cursor() as cursor:
            while not self._end.is_set():
                cursor.execute("INSERT INTO t (v) VALUES (REPEAT('w', 100)), (%s)", (uuid.uuid4().hex,))
                self.done += 1
        connection.close()
