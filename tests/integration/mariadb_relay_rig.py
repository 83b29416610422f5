"""Provides a relay of a real MariaDB with large rows, the events it serves, and those in the server's own files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.fetch.server_id import derived
from shardmerge.worker.relay.model import BlockData, PurgePolicy, ReachedUntil
from shardmerge.worker.relay.relay import Relay
from tests.support.binlog import read_binlog, split
from tests.support.mariadb import MariaDB
from tests.support.server_ids import unleased
from tests.support.wait import until

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
    """``make_relay(server, directory=…, **settings)`` returns an opened, not started relay; it is stopped after the
    test."""
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
    return relay.locate(end_of(server), 300, StopSignal())


def served(relay: Relay, start: RelayOffset | None = None, end: RelayOffset | None = None) -> list[bytes]:
    """Return the served events, except format descriptions."""
    found: list[bytes] = []
    items = relay.subscribe(start or relay.first().offset, end or relay.head().offset, None, StopSignal())
    for item in items:
        if isinstance(item, BlockData):
            found += [made for made in split(item.events) if made[4] != EventType.FORMAT_DESCRIPTION]
        else:
            assert isinstance(item, ReachedUntil)
    return found


def written(server: MariaDB) -> list[bytes]:
    """Return the events of the server's own files that a replica receives."""
    found: list[bytes] = []
    for name, *_ in server.query("SHOW BINARY LOGS"):
        events = read_binlog(server.directory / "data" / str(name)).each()
        found += [made for made in events if made[4] not in _NOT_SENT]
    return found


def assert_same(relay: Relay, server: MariaDB) -> None:
    """Compare without `==` in the assertion: pytest would compare megabytes for its message."""

    def look() -> tuple[SourcePosition, list[bytes]] | None:
        # A moment after a new file has begun, MariaDB writes by itself which file a recovery would need.
        end, found = end_of(server), written(server)
        return (end, found) if end == end_of(server) else None

    end, wanted = until(look, "nothing is being written")
    got = served(relay, end=relay.locate(end, 300, StopSignal()))
    same = got == wanted
    assert same, f"{len(got)} events served, {len(wanted)} written"


def failed_with(relay: Relay, spec: ErrorSpec) -> ShardmergeError:
    def look() -> ShardmergeError | None:
        error = relay.status().error
        return error if error is not None and error.spec is spec else None

    return until(look, f"the relay's error is {spec.name}")


class Writer:
    """Commits small transactions until stopped; a failed one is neither counted nor retried."""

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
