"""Tests the HTTP endpoint over real sockets: its pages, its limits, TLS, and its end."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.http import acceptor, connection, routes
from shardmerge.proto.http.loops import STUCK_SECONDS, LoopAges
from shardmerge.proto.http.probes import Probes, Readiness
from shardmerge.proto.http.server import HttpEndpoint, started_endpoint
from shardmerge.proto.metrics import own_both
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.tls import process as tls
from shardmerge.proto.tls.model import Tls
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.wait import until

_SAMPLES = (own_both.READY.sample(1),)


def _samples() -> Sequence[Sample]:
    return _SAMPLES


def _no_loops() -> Mapping[str, float]:
    return {}


def _ready(role: str) -> Readiness:
    return Readiness()


_PROBES = Probes("dm-master", "1.2", _samples, _no_loops, _ready, ("master", "leader"), lambda: True)
Serve = Callable[[Probes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts an endpoint and returns its address."""
    started: list[HttpEndpoint] = []

    def start(probes: Probes) -> str:
        address = f"127.0.0.1:{free_port()}"
        endpoint = HttpEndpoint(address, probes)
        endpoint.start()
        started.append(endpoint)
        return address

    yield start
    for endpoint in started:
        endpoint.stop()


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def _all(sock: socket.socket) -> str:
    """Return what arrives until the other side ends the connection."""
    parts: list[bytes] = []
    with suppress(ConnectionResetError):
        while part := sock.recv(65_536):
            parts.append(part)
    return b"".join(parts).decode()


def _ask(address: str, path: str, method: str = "GET", headers: str = "", body: str = "") -> tuple[int, str]:
    """Make one request; return the status and the whole text."""
    with _connect(address) as sock:
        sock.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n{body}".encode()
        )
        text = _all(sock)
    return (int(text.split(" ", 2)[1]) if text else 0), text


def test_metrics_are_for_callers_with_a_token() -> None:
    """Both keys count while the cluster's key is replaced, and each change counts at once."""
    tokens = ["a" * 64, "b" * 64]
    address = f"127.0.0.1:{free_port()}"
    endpoint = HttpEndpoint(address, _PROBES, lambda: tokens)
    endpoint.start()
    try:
        for sent, status in (
            ("", 401),
            ("Authorization: Bearer\r\n", 401),
            (f"Authorization: Bearer {'c' * 64}\r\n", 401),
            (f"Authorization: Basic {tokens[0]}\r\n", 401),
            (f"Authorization: Bearer {tokens[0][:-1]}\r\n", 401),
            ("Authorization: Bearer \xe9\r\n", 401),
            (f"Authorization: Bearer {tokens[0]}\r\n", 200),
            (f"authorization: bearer  {tokens[1]} \r\n", 200),
        ):
            for path in ("/metrics", "/%6detrics", "/metrics?x=1"):
                for method in ("GET", "HEAD"):
                    found, text = _ask(address, path, method, sent)
                    assert found == status and ("dm_ready" in text) is (status == 200 and method == "GET"), (sent, text)
            assert "dmctl encrypt --metrics-token" in _ask(address, "/metrics")[1]
            assert {_ask(address, path, headers=sent)[0] for path in ("/livez", "/readyz", "/leader", "/version")} == {
                200
            }
        del tokens[0]
        assert _ask(address, "/metrics", headers=f"Authorization: Bearer {'a' * 64}\r\n")[0] == 401
        tokens.clear()  # a daemon without a key
        assert _ask(address, "/metrics", headers="Authorization: Bearer \r\n")[0] == 401
    finally:
        endpoint.stop()


def test_metrics_are_prometheus_text(serve: Serve) -> None:
    status, text = _ask(serve(_PROBES), "/metrics")
    assert status == 200
    assert "content-type: text/plain; version=0.0.4; charset=utf-8" in text.lower()
    assert "\ndm_ready 1.0\n" in text


def test_head_has_no_body(serve: Serve) -> None:
    status, text = _ask(serve(_PROBES), "/metrics", "HEAD")
    assert status == 200
    assert text.partition("\r\n\r\n")[2] == ""


def test_a_loop_that_hangs_ends_livez(serve: Serve) -> None:
    now = [0.0]
    loops = LoopAges(lambda: now[0])
    address = serve(replace(_PROBES, loop_ages=loops.ages))
    loops.begins("placement")
    assert _ask(address, "/livez")[0] == 200
    now[0] = STUCK_SECONDS + 1
    status, text = _ask(address, "/livez")
    assert (status, "loops that hang: placement" in text) == (503, True)
    loops.ended("placement")
    assert _ask(address, "/livez")[0] == 200


def test_readyz_names_what_is_missing_and_knows_its_roles(serve: Serve) -> None:
    def readiness(role: str) -> Readiness:
        return Readiness(("not the leader",) if role == "leader" else ())

    address = serve(replace(_PROBES, readiness=readiness))
    assert _ask(address, "/readyz")[0] == 200
    assert _ask(address, "/readyz?role=master")[0] == 200
    status, text = _ask(address, "/readyz?role=leader")
    assert (status, "not the leader" in text) == (503, True)
    status, text = _ask(address, "/readyz?role=worker")
    assert (status, "role must be one of: master, leader" in text) == (400, True)


def test_leader_is_ok_at_the_leader_only(serve: Serve) -> None:
    assert _ask(serve(_PROBES), "/leader")[0] == 200
    assert _ask(serve(replace(_PROBES, leads=lambda: False)), "/leader")[0] == 503
    assert _ask(serve(replace(_PROBES, leads=None)), "/leader")[0] == 404


def test_version(serve: Serve) -> None:
    assert '{"daemon":"dm-master","version":"1.2"}' in _ask(serve(_PROBES), "/version")[1]


def test_what_is_refused(serve: Serve) -> None:
    address = serve(_PROBES)
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert _ask(address, "/metrics", method)[0] == 405, method
    assert _ask(address, "/metrics", headers="Content-Length: 3\r\n", body="abc")[0] == 413
    assert _ask(address, "/metrics", headers="Transfer-Encoding: chunked\r\n", body="0\r\n\r\n")[0] == 413
    assert (_ask(address, "/other")[0], _ask(address, "/other", "POST")[0]) == (404, 405)
    # Which of both depends on whether the head arrives at once.
    assert _ask(address, f"/metrics?{'x' * 10_000}")[0] in (400, 431)
    assert _ask(address, "/metrics", headers=f"X: {'y' * 10_000}\r\n")[0] in (400, 431)
    assert _ask(address, "/metrics")[0] == 200


def test_a_connection_without_a_request_is_ended(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    address = serve(_PROBES)
    for begun in (b"", b"GET /metrics HTTP/1.1\r\nHost:"):
        with _connect(address) as sock:
            sock.sendall(begun)
            assert _all(sock) == ""


def _open_ones(sockets: Sequence[socket.socket]) -> int:
    """Return how many of these connections the endpoint has not ended."""
    found = 0
    for sock in sockets:
        sock.setblocking(False)
        try:
            found += sock.recv(65_536) != b""
        except BlockingIOError:
            found += 1
        except ConnectionResetError:
            pass
    return found


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_connections_neither_fill_the_process_nor_keep_a_probe_away(serve: Serve) -> None:
    address = serve(_PROBES)
    opened: list[socket.socket] = []
    before = _descriptors()
    try:
        for number in range(300):
            opened.append(_connect(address))
            if number % 50 == 49:
                assert _ask(address, "/livez")[0] == 200, "a probe is answered while others hold connections open"
        until(lambda: _open_ones(opened) <= acceptor.MOST_CONNECTIONS, "those that waited longest are ended")
        until(lambda: _descriptors() - before - len(opened) <= acceptor.MOST_CONNECTIONS, "nothing else stays open")
        assert _open_ones(opened) >= acceptor.MOST_CONNECTIONS - 2, "no more than necessary are ended"
    finally:
        for sock in opened:
            sock.close()


def test_callers_that_do_not_read_their_answers_make_room(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "_PROTECTED_SECONDS", 0.5)
    many = tuple(own_both.LOOP_AGE.sample(1, loop=f"{number:0500d}") for number in range(10_000))
    address = serve(replace(_PROBES, samples=lambda: many))
    opened = [_connect(address) for _ in range(acceptor.MOST_CONNECTIONS)]
    try:
        for sock in opened:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for sock in opened:
            assert sock.recv(1) == b"H"
        began = time.monotonic()
        until(lambda: _ask(address, "/livez")[0] == 200, "there is room again")
        assert time.monotonic() - began < connection.HEAD_SECONDS / 2, "before they are ended for their slowness"
    finally:
        for sock in opened:
            sock.close()


def test_callers_that_never_pause_keep_no_probe_away(serve: Serve) -> None:
    address = serve(_PROBES)
    ending = threading.Event()
    requests = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200

    def ask_on() -> None:
        while not ending.is_set():
            with suppress(OSError), _connect(address) as sock:
                sock.settimeout(0.2)
                while not ending.is_set():
                    sock.sendall(requests)

    threads = [threading.Thread(target=ask_on) for _ in range(acceptor.MOST_CONNECTIONS)]
    for thread in threads:
        thread.start()
    try:
        answered = [_is_answered(address) for _ in range(50) if not ending.wait(0.02)]
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    assert answered.count(True) > 45


def _is_answered(address: str) -> bool:
    with suppress(OSError):
        return _ask(address, "/livez")[0] == 200
    return False


def test_a_request_in_progress_is_not_ended_for_a_new_one(serve: Serve) -> None:
    release = threading.Event()

    def slow() -> Sequence[Sample]:
        release.wait(4)
        return _SAMPLES

    address = serve(replace(_PROBES, samples=slow))
    with _connect(address) as asking:
        asking.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        time.sleep(0.1)  # that it is older than the others
        opened = [_connect(address) for _ in range(2 * acceptor.MOST_CONNECTIONS)]
        until(lambda: _open_ones(opened) < acceptor.MOST_CONNECTIONS, "others are ended")
        release.set()
        assert "200 OK" in _all(asking)
        for sock in opened:
            sock.close()


def test_callers_in_a_loop_take_a_small_part_of_the_time(serve: Serve) -> None:
    spent = [0.0]

    def costly() -> Sequence[Sample]:
        began = time.monotonic()
        time.sleep(0.1)
        spent[0] += time.monotonic() - began
        return _SAMPLES

    address = serve(replace(_PROBES, samples=costly))
    began = time.monotonic()
    while time.monotonic() - began < 2:
        assert _ask(address, "/metrics")[0] == 200
    assert spent[0] < 0.3 * (time.monotonic() - began)


def test_a_page_of_another_site_gets_nothing(serve: Serve) -> None:
    address = serve(_PROBES)
    port = address.rpartition(":")[2]

    def answer(host: str) -> int:
        with _connect(address) as sock:
            sock.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return int(_all(sock).split(" ", 2)[1])

    assert answer(f"127.0.0.1:{port}@rebound.example") == answer(f"localhost:{port}:80") == 400
    assert answer("rebound.example:80") == answer(f"rebound.example:{port}") == 421
    assert answer(address) == answer(f"localhost:{port}") == answer(f"[::1]:{port}") == answer("localhost") == 200


def test_paths_that_are_not_pages(serve: Serve) -> None:
    address = serve(_PROBES)
    for path in ("/metrics/", "//metrics", "/metrics/../metrics", "/%2e%2e/metrics", "/metrics%00", "*", "/metrics;x"):
        status, text = _ask(address, path)
        assert (status, "location" in text.lower()) == (404, False), path
    assert _ask(address, "http://localhost/metrics")[0] == 404
    assert _ask(address, "/caf\u00e9")[0] == 400


def test_a_slow_collection_is_given_up_and_other_pages_answer(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_COLLECT_SECONDS", 0.5)
    release, calls = threading.Event(), [0]

    def slow() -> Sequence[Sample]:
        calls[0] += 1
        release.wait(20)
        return _SAMPLES

    address = serve(replace(_PROBES, samples=slow))
    asked: list[tuple[int, str]] = []
    threads = [threading.Thread(target=lambda: asked.append(_ask(address, "/metrics"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: calls[0] == 1, "a collection has begun")
    assert _ask(address, "/livez")[0] == 200
    for thread in threads:
        thread.join()
    assert [status for status, _ in asked] == [503] * 3
    assert calls == [1], "scrapes at the same time share a collection"
    release.set()
    until(lambda: _ask(address, "/metrics")[0] == 200, "the next collection answers")


def test_a_failed_collection_is_an_error(serve: Serve) -> None:
    def fails() -> Sequence[Sample]:
        raise RuntimeError("secret")

    status, text = _ask(serve(replace(_PROBES, samples=fails)), "/metrics")
    assert (status, "secret" in text) == (500, False)


def test_it_ends_while_a_caller_holds_a_connection_open() -> None:
    address = f"127.0.0.1:{free_port()}"
    endpoint = HttpEndpoint(address, _PROBES)
    endpoint.start()
    with _connect(address) as idle, _connect(address) as begun:
        begun.sendall(b"GET /metrics HTTP/1.1\r\n")
        began = time.monotonic()
        endpoint.stop()
        assert time.monotonic() - began < 2
        assert (_all(idle), _all(begun)) == ("", "")
    with pytest.raises(OSError, match=r".*"):
        _connect(address)


def test_an_address_in_use_is_an_error_only_if_it_was_configured() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ShardmergeError) as raised:
            started_endpoint(address, _PROBES, is_default=False)
        assert raised.value.spec is errors.master.CANNOT_LISTEN
        assert "another process listens there" in str(raised.value)
        assert started_endpoint(address, _PROBES, is_default=True) is None
    assert started_endpoint("", _PROBES, is_default=False) is None
    with pytest.raises(ShardmergeError):
        started_endpoint(f"198.51.100.1:{free_port()}", _PROBES, is_default=False)


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    made = Authority(tmp_path)
    yield made
    tls.use(None)


def _handshake(address: str, context: ssl.SSLContext) -> str:
    """Return the answer to a request over TLS; "" if the connection is refused."""
    try:
        with context.wrap_socket(_connect(address), server_hostname="localhost") as sock:
            sock.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return _all(sock)
    except (ssl.SSLError, ConnectionError):
        return ""


def _client(authority: Authority, *pair: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    if pair:
        context.load_cert_chain(*pair)
    return context


def test_with_tls_a_caller_shows_a_certificate_of_an_allowed_name(serve: Serve, authority: Authority) -> None:
    own, prometheus = authority.issue("own", "dm"), authority.issue("prometheus", "prometheus")
    stranger = authority.issue("stranger", "stranger")
    tls.use(Tls(own, ("dm", "prometheus")))
    address = serve(_PROBES)
    assert "200 OK" in _handshake(address, _client(authority, prometheus.cert, prometheus.key))
    assert _handshake(address, _client(authority)) == ""
    assert _handshake(address, _client(authority, stranger.cert, stranger.key)) == ""
    with _connect(address) as plain:
        plain.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert "200" not in _all(plain)


def test_with_tls_callers_without_a_handshake_are_few(serve: Serve, authority: Authority) -> None:
    own = authority.issue("own", "dm")
    tls.use(Tls(own))
    address = serve(_PROBES)
    before = _descriptors()
    opened: list[socket.socket] = []
    began = time.monotonic()
    try:
        for _ in range(200):
            opened.append(_connect(address))
        until(lambda: _open_ones(opened) <= acceptor.MOST_CONNECTIONS, "those that waited longest are ended")
        until(lambda: _descriptors() - before - len(opened) <= acceptor.MOST_CONNECTIONS, "nothing else stays open")
        assert time.monotonic() - began < connection.HEAD_SECONDS / 2, "before they are ended for their slowness"
        assert "200 OK" in _handshake(address, _client(authority, own.cert, own.key))
    finally:
        for sock in opened:
            sock.close()


def test_replaced_certificates_are_used(
    serve: Serve, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmerge.proto.http.server._LOOK_SECONDS", 0.1)
    own = authority.issue("own", "dm")
    tls.use(Tls(own))
    address = serve(_PROBES)
    client = _client(authority, own.cert, own.key)
    assert "200 OK" in _handshake(address, client)
    other = Authority(tmp_path / "other")
    issued = other.issue("own", "dm")
    for old, new in ((own.ca, issued.ca), (own.cert, issued.cert), (own.key, issued.key)):
        Path(old).write_bytes(Path(new).read_bytes())
    until(lambda: "200 OK" in _handshake(address, _client(other, issued.cert, issued.key)), "the new pair is served")
    assert _handshake(address, client) == "", "the former authority is no longer trusted"
