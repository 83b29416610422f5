"""Tests TLS to sources and targets: the identity of the server is verified before a password is sent."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.config.source import parse_source_file
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect, rows, text_of
from shardmerge.worker.core.mysql.endpoint import PLAIN, Tls
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import PurgePolicy
from shardmerge.worker.relay.relay import Relay
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.server_ids import unleased
from tests.support.wait import until

_CREATED = "CREATE USER {}@'127.0.0.1' IDENTIFIED WITH caching_sha2_password BY 'secret' REQUIRE {}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySQL]:
    """Provide a MySQL, which creates its own certificates at its start."""
    made = MySQL(tmp_path_factory.mktemp("tls") / "source", 1)
    try:
        made.start()
        for user, needs in (("one", "X509"), ("any", "SSL"), ("plain", "NONE")):
            made.execute(_CREATED.format(user, needs), f"GRANT ALL ON *.* TO {user}@'127.0.0.1'")
        yield made
    finally:
        made.stop()


def endpoint(server: Database, user: str, tls: Tls = PLAIN, password: str = "secret") -> Endpoint:
    return Endpoint(server.host, server.port, user, password, tls=tls)


def of(server: Database, *names: str, **others: tuple[str, ...]) -> Tls:
    """Return TLS options for ``names`` of files, by key of :class:`Tls`."""
    files = {"ca": "ca.pem", "cert": "client-cert.pem", "key": "client-key.pem"}
    return Tls(**{name: str(server.directory / "data" / files[name]) for name in names}, **others)  # type: ignore[arg-type]


def cipher(where: Endpoint, side: Side = Side.SOURCE) -> str:
    session = connect(where, side, name="s1")
    try:
        [(_, found)] = rows(session, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return text_of(found)
    finally:
        session.close()


def refused(where: Endpoint, spec: errors.ErrorSpec, side: Side = Side.SOURCE) -> str:
    with pytest.raises(ShardmergeError) as caught:
        connect(where, side, name="s1")
    assert caught.value.spec is spec
    return str(caught.value)


@pytest.mark.parametrize("side", list(Side))
def test_accounts_that_ask_for_tls(server: MySQL, side: Side) -> None:
    assert cipher(endpoint(server, "one", of(server, "ca", "cert", "key")), side)
    assert cipher(endpoint(server, "any", of(server, "ca")), side)
    # Without TLS options the connection is encrypted if the server supports it, without verification, like the servers'
    # own clients. The account is in the server's cache by now.
    assert cipher(endpoint(server, "any"), side)
    refused(endpoint(server, "one", of(server, "ca")), errors.relay.ACCESS_DENIED)


def test_a_server_that_is_not_the_one_meant(server: MySQL) -> None:
    another_ca = Tls(ca=of(server, "cert").cert)
    said = refused(endpoint(server, "plain", another_ca), errors.worker.TLS_PEER_REFUSED)
    assert f"127.0.0.1:{server.port}" in said
    version = str(server.query("SELECT @@version")[0][0]).partition("-")[0]
    name = f"MySQL_Server_{version}_Auto_Generated_Server_Certificate"
    assert cipher(endpoint(server, "plain", of(server, "ca", allowed_cn=("somebody", name))))
    said = refused(
        endpoint(server, "plain", of(server, "ca", allowed_cn=("somebody",))), errors.worker.TLS_PEER_REFUSED
    )
    assert name in said


@pytest.mark.parametrize("kind", [MariaDB, MySQL])
def test_a_server_without_tls_is_not_spoken_to_when_keys_are_given(
    server: MySQL, tmp_path: Path, kind: type[Database]
) -> None:
    # MySQL creates its own certificates; without an enabled protocol version it offers no TLS.
    options = () if kind is MariaDB else ("--tls-version=",)
    bare = kind(tmp_path / "bare", 3, options).start()
    where = endpoint(bare, "root", of(server, "ca"), "")
    relay = Relay(tmp_path / "relay", "s1", where, bare.flavor, unleased(4711), PurgePolicy())
    try:
        assert cipher(endpoint(bare, "root", password="")) == ""
        for side in Side:
            said = refused(where, errors.worker.TLS_NOT_OFFERED, side)
            assert f"127.0.0.1:{bare.port}" in said
        assert not errors.worker.TLS_NOT_OFFERED.retryable
        relay.ensure_from(SourcePosition("mysql-bin.000001", 4))
        relay.start()
        failure = until(relay.failure, "the relay stops")
        assert failure.spec is errors.worker.TLS_NOT_OFFERED
    finally:
        relay.stop()
        bare.stop()


def test_a_server_that_ends_the_handshake_is_a_lost_one(server: MySQL) -> None:
    """The client does not learn what the server offers, with TLS options too."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        threading.Thread(target=lambda: listening.accept()[0].close()).start()
        where = Endpoint("127.0.0.1", port, "root", tls=of(server, "ca"))
        assert refused(where, errors.relay.SOURCE_LOST)


def test_files_that_cannot_be_used(server: MySQL, tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    assert missing in refused(endpoint(server, "any", Tls(ca=missing)), errors.worker.TLS_FILE)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    assert str(garbage) in refused(endpoint(server, "any", Tls(ca=str(garbage))), errors.worker.TLS_FILE)
    # After a correction of the file it is read again.
    shutil.copy(of(server, "ca").ca, garbage)
    assert cipher(endpoint(server, "any", Tls(ca=str(garbage))))


def contents(server: Database, *names: str) -> pb.Tls:
    """Return the options of :func:`of` with the contents of the files instead of their paths."""
    files = of(server, *names)
    return pb.Tls(**{f"{name}_content": Path(getattr(files, name)).read_text() for name in names})


@pytest.mark.parametrize("form", ["bytes", "base64", "numbers"])
def test_certificates_that_the_configuration_itself_holds(
    server: MySQL, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    given = contents(server, "ca", "cert", "key")
    lines = ["source-id: s1", "from:", f"  host: {server.host}", f"  port: {server.port}", "  user: one",
             "  password: secret", "  security:", "    ssl-ca: /nowhere.pem"]  # fmt: skip
    for name in ("ca", "cert", "key"):
        text: str = getattr(given, f"{name}_content")
        written = {
            "bytes": json.dumps(text),
            "base64": base64.b64encode(text.encode()).decode(),
            "numbers": str([*text.encode()]),
        }[form]
        lines.append(f"    ssl-{name}-{'base64' if form == 'base64' else 'bytes'}: {written}")
    file = parse_source_file("\n".join(lines), "s1.yaml", {})
    assert [note.split(": ", 1)[1] for note in file.notes] == [
        "from.security.ssl-ca: no effect: its content is configured too"
    ]
    where = Endpoint.from_proto(getattr(file.config, "from"))
    assert cipher(where)
    assert where.tls.key_content not in repr(where.tls)
    # The temporary files for the library are removed.
    assert list(tmp_path.iterdir()) == []


def test_contents_that_cannot_be_used(server: MySQL) -> None:
    given = contents(server, "ca", "cert", "key")
    another = contents(server, "ca").ca_content
    message = refused(endpoint(server, "one", Tls(ca_content="-----BEGIN x")), errors.worker.TLS_CONTENT)
    assert "ssl-ca" in message and "BEGIN" not in message
    wrong = Tls(ca_content=given.ca_content, cert_content=another, key_content=given.key_content)
    assert "ssl-cert or ssl-key" in refused(endpoint(server, "one", wrong), errors.worker.TLS_CONTENT)
    unmet = Tls(ca_content=given.cert_content)
    refused(endpoint(server, "plain", unmet), errors.worker.TLS_PEER_REFUSED)
    mixed = Tls(cert=of(server, "cert").cert, key_content=given.key_content)
    assert cipher(endpoint(server, "one", mixed))


def test_the_relay_copies_by_tls(server: MySQL, tmp_path: Path) -> None:
    where = endpoint(server, "one", of(server, "ca", "cert", "key"))
    relay = Relay(tmp_path, "s1", where, "mysql", unleased(4711), PurgePolicy())
    relay.ensure_from(SourcePosition("mysql-bin.000001", 4))
    relay.start()
    try:
        server.execute(
            "CREATE DATABASE d", "CREATE TABLE d.t (v LONGTEXT)", "INSERT INTO d.t VALUES (REPEAT('x', 5000000))"
        )
        end = relay.locate(SourcePosition(*server.binlog_end()), 300, StopSignal())
        assert relay.bytes_between(relay.first().offset, end) > 5_000_000
    finally:
        relay.stop()
