"""A server and a client of this project, over a real socket, with right and wrong certificates on either side."""

from __future__ import annotations

import socket
import ssl
import threading
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from grpc_health.v1 import health_pb2

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.rpc import client
from shardmerge.proto.rpc.server import listen, make_server
from shardmerge.proto.tls import process
from shardmerge.proto.tls.diagnose import diagnose
from shardmerge.proto.tls.model import Tls, TlsFiles
from tests.support.certificates import Authority
from tests.support.ports import free_port


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "theirs", "another authority")


@pytest.fixture(autouse=True)
def plain_afterwards() -> Iterator[None]:
    yield
    process.use(None)


@contextmanager
def serving(tls: Tls | None) -> Generator[str]:
    """A server of ``tls``, at this address. What the process uses afterwards is the client's."""
    process.use(tls)
    server = make_server((), "dm-test")
    address = f"127.0.0.1:{listen(server, '127.0.0.1:0')}"
    server.start()
    try:
        yield address
    finally:
        server.stop(0).wait()


def check(channel: grpc.Channel) -> None:
    method = channel.unary_unary("/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest.SerializeToString, bytes)
    method(health_pb2.HealthCheckRequest(), timeout=300)


@contextmanager
def watching(channel: grpc.Channel) -> Generator[Iterator[bytes]]:
    method = channel.unary_stream(
        "/grpc.health.v1.Health/Watch", health_pb2.HealthCheckRequest.SerializeToString, bytes
    )
    stream = method(health_pb2.HealthCheckRequest(), timeout=300)
    yield iter(stream)
    stream.cancel()


def ask(address: str) -> None:
    """One call by the process's certificates. Raises the coded error of its failure."""
    with client.channel(address) as channel:
        try:
            check(channel)
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, "the server", address) from error


def refused(address: str, spec: ErrorSpec) -> ShardmergeError:
    with pytest.raises(ShardmergeError) as caught:
        ask(address)
    assert caught.value.spec is spec, caught.value
    return caught.value


def test_both_sides_show_a_certificate(authority: Authority) -> None:
    with serving(Tls(authority.issue("server", "dm-worker"))) as address:
        process.use(Tls(authority.issue("client", "dm-master")))
        ask(address)
        assert diagnose(address, authority.issue("client", "dm-master")) is None


def test_plain_text_stays_plain_text() -> None:
    with serving(None) as address:
        ask(address)
        assert diagnose(address, None) is None


def test_a_client_without_tls(authority: Authority) -> None:
    with serving(Tls(authority.issue("server", "dm-worker"))) as address:
        process.use(None)
        said = refused(address, errors.tls.PEER_WANTS_TLS)
    assert address in said.message
    assert "--ssl-ca" in said.workaround


def test_a_server_without_tls(authority: Authority) -> None:
    with serving(None) as address:
        process.use(Tls(authority.issue("client", "dm-master")))
        said = refused(address, errors.tls.PEER_PLAIN)
    assert address in said.message


def test_a_server_of_another_name(authority: Authority) -> None:
    server = authority.issue("server", "dm-worker", hosts=("worker.example", "10.0.0.9"))
    with serving(Tls(server)) as address:
        process.use(Tls(authority.issue("client", "dm-master")))
        said = refused(address, errors.tls.PEER_NAME)
    assert "not for 127.0.0.1, but for worker.example, 10.0.0.9" in said.message


def test_a_server_of_another_authority(authority: Authority, stranger: Authority) -> None:
    with serving(Tls(stranger.issue("server", "dm-worker"))) as address:
        process.use(Tls(authority.issue("client", "dm-master")))
        said = refused(address, errors.tls.PEER_NOT_TRUSTED)
    assert "ssl-ca" in said.workaround


def test_a_client_of_another_authority(authority: Authority, stranger: Authority) -> None:
    with serving(Tls(authority.issue("server", "dm-worker"))) as address:
        process.use(Tls(replace(stranger.issue("client", "dm-master"), ca=authority.ca)))
        said = refused(address, errors.tls.OWN_REFUSED)
    assert "client.pem" in said.message


def test_a_client_that_may_only_serve(authority: Authority) -> None:
    client = authority.issue("client", "dm-master", usages=(ExtendedKeyUsageOID.SERVER_AUTH,))
    with serving(Tls(authority.issue("server", "dm-worker"))) as address:
        process.use(Tls(client))
        said = refused(address, errors.tls.OWN_REFUSED)
    assert "clientAuth" in said.workaround


def test_a_server_whose_certificate_expires(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ran on while its certificate ran out: who comes anew is refused, and told why."""
    expired = authority.issue("server", "dm-worker", days=-1)
    monkeypatch.setattr("shardmerge.proto.tls.files._is_valid", bool)  # it was, at the server's start
    with serving(Tls(expired)) as address:
        process.use(Tls(authority.issue("client", "dm-master")))
        said = refused(address, errors.tls.PEER_NOT_TRUSTED)
    assert "expired" in said.message


def test_clients_that_do_not_check_themselves(authority: Authority) -> None:
    """A thief's client: its certificate has expired, or it offers old versions of TLS only."""
    expired, valid = authority.issue("expired", "dm-master", days=-1), authority.issue("client", "dm-master")
    with serving(Tls(authority.issue("server", "dm-worker"))) as address:
        assert _is_accepted(address, valid, ssl.TLSVersion.TLSv1_2)
        assert not _is_accepted(address, expired, ssl.TLSVersion.TLSv1_2)
        assert not _is_accepted(address, expired, ssl.TLSVersion.TLSv1_3)
        assert not _is_accepted(address, valid, ssl.TLSVersion.TLSv1_1)
        assert not _is_accepted(address, valid, ssl.TLSVersion.TLSv1)


def _is_accepted(address: str, files: TlsFiles, newest: ssl.TLSVersion) -> bool:
    """Whether the server sends its settings of HTTP/2 to a client with these files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.set_alpn_protocols(["h2"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = newest
    context.load_cert_chain(files.cert, files.key)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        try:
            with context.wrap_socket(plain) as opened:
                return len(opened.recv(1)) == 1
        except OSError:
            return False


def test_names_that_may_call(authority: Authority) -> None:
    server = Tls(authority.issue("server", "dm-worker"), ("dm-worker", "dm-master"))
    with serving(server) as address:
        ask(address)
        other = authority.issue("client", "unlisted")
        process.use(Tls(other, server.allowed_names))
        said = refused(address, errors.tls.NAME_REFUSED)
        assert "dm-test takes no calls from the certificate of unlisted" in said.message
        with client.channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
            check(channel)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with client.channel(address) as channel, watching(channel) as stream, pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_certificates_are_replaced_while_connections_last(authority: Authority, stranger: Authority) -> None:
    files = authority.issue("server", "dm-worker")
    with serving(Tls(files)) as address, client.channel(address) as old:
        check(old)
        with watching(old) as stream:
            assert next(stream)
        # All of another authority: the client must have read its files anew, and the server too.
        theirs = stranger.issue("server", "dm-worker")
        for ours, new in zip(files.paths, theirs.paths, strict=True):
            Path(new).replace(ours)
        ask(address)
        check(old)
        process.use(Tls(Authority(Path(files.ca).parent / "third").issue("client", "x")))
        refused(address, errors.tls.PEER_NOT_TRUSTED)


def test_no_process_there(authority: Authority) -> None:
    """Not a matter of TLS."""
    process.use(Tls(authority.issue("client", "dm-master")))
    refused(f"127.0.0.1:{free_port()}", errors.master.PEER_UNREACHABLE)


@pytest.mark.parametrize("closes", [True, False])
def test_a_caller_that_sends_nothing(authority: Authority, closes: bool) -> None:
    """A process that ends, or hangs, while it is asked: nobody knows what it would have spoken."""
    held: list[socket.socket] = []

    def accept() -> None:
        connection, _ = silent.accept()
        connection.close() if closes else held.append(connection)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        threading.Thread(target=accept, daemon=True).start()
        assert diagnose(address, authority.issue("client", "dm-master")) is None


def test_a_client_with_no_certificate(authority: Authority) -> None:
    with serving(Tls(authority.issue("server", "dm-worker"))) as address:
        said = diagnose(address, TlsFiles(authority.ca))
    assert said is not None
    assert said.spec is errors.tls.OWN_REFUSED
