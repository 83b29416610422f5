"""Tests a target behind a TCP proxy that leads to another server when the first one ends."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect, rows
from shardmerge.worker.verify.precheck.target.session_proxy import session_proxied
from tests.support.cluster import Cluster
from tests.support.haproxy import HAProxy
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer


class _Behind(MariaDB):
    """The server as clients see it: at the proxy's port."""

    proxy: HAProxy

    @property
    def login(self) -> str:
        return f'{{host: 127.0.0.1, port: {self.proxy.port}, user: root, password: ""}}'


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[_Behind, MariaDB]]:
    """A target behind a proxy, and the server to which the proxy leads when the target ends."""
    target, other = _Behind(tmp_path / "target", 201), MariaDB(tmp_path / "other", 202)
    target.start()
    other.start()
    target.proxy = HAProxy(tmp_path / "proxy", (target, other)).start()
    try:
        yield target, other
    finally:
        for server in (target.proxy, other, target):
            server.stop()


def test_a_server_without_the_records_is_detected_and_nothing_is_written_to_it(
    proxied: tuple[_Behind, MariaDB], make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> None:
    target, other = proxied
    source = make_server("source")
    cluster = make_cluster(workers=1)
    cluster.create_source("mysql-01", source)
    family = Family("proxied", (("mysql-01", source),), target)
    shards = family.create(200)
    with Writer(shards, seed=7) as writer:
        cluster.start_task(family.task())
        cluster.wait_replicating("proxied")
        target.kill()
        [stopped] = cluster.wait_paused("proxied").values()
        # Whichever connection has noticed it first: the next run reports what has happened.
        cluster.dmctl("resume-task", "proxied", check=False)
        code = errors.replicate.TARGET_WITHOUT_RECORDS.code
        cluster.wait_subtasks("proxied", lambda one: [each[0] for each in one.errors] == [code], "names the server")
        [stopped] = cluster.subtasks("proxied").values()
        assert all(part in stopped.errors[0][1] for part in ("server-id 202", "server-id 201", "dm_meta"))
        schemas = {str(name) for (name,) in other.query("SHOW DATABASES")}
        assert not schemas & {"proxied", "dm_meta"}, schemas

        target.start()
        until(lambda: _server_at(target.proxy.port) == 201, "the proxy leads to the target again")
        cluster.dmctl("resume-task", "proxied")
        cluster.wait_replicating("proxied")
        writer.stop()
    cluster.wait_caught_up("proxied", {"mysql-01": source})
    assert family.verdict().differences == 0, family.verdict()
    assert cluster.compare("proxied").rows > 0


def _server_at(port: int) -> int:
    with closing(_session(port)) as session:
        return int(rows(session, "SELECT @@server_id")[0][0])


def _session(port: int) -> Session:
    return connect(Endpoint("127.0.0.1", port, "root"), Side.TARGET, name="target")


def test_a_proxy_that_numbers_its_own_sessions_is_refused(proxied: tuple[_Behind, MariaDB]) -> None:
    """A proxy in TCP mode passes; one whose login has another connection number than its statements does not."""
    target, _ = proxied
    with closing(_session(target.proxy.port)) as session:
        assert session_proxied(session) is None
    with _Renumbering(target.port) as port, closing(_session(port)) as session:
        error = session_proxied(session)
    assert error is not None and error.spec is errors.check.SESSION_PROXIED
    assert str(port) in error.message and "mode tcp" in error.workaround


class _Renumbering:
    """Forwards one connection to a server, with another connection number in its handshake."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> int:
        threading.Thread(target=self._forward, daemon=True).start()
        return int(self._listener.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _forward(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._port))
        greeting = bytearray(server.recv(1 << 16))
        # 4 bytes of header, the protocol's version, the server's version with its zero byte, the number.
        place = greeting.index(0, 5) + 1
        [number] = struct.unpack_from("<I", greeting, place)
        struct.pack_into("<I", greeting, place, number + 7)
        client.sendall(greeting)
        threading.Thread(target=_copy, args=(client, server), daemon=True).start()
        _copy(server, client)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with source, sink:
        while data := source.recv(1 << 16):
            sink.sendall(data)
