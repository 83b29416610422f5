"""Tests that a server with another identity gets no password and no file, and cannot fill memory or block a thread."""

from __future__ import annotations

import resource
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors, networks
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.networks import Networks
from shardmerge.worker.core.mysql import connection
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, ask, coded_errors, connect, execute, rows
from shardmerge.worker.core.mysql.endpoint import Tls
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.dump_connection import Dump
from shardmerge.worker.relay.fetch.dump_start import FromFile
from shardmerge.worker.snapshot.source.raw_query import raw_rows
from tests.support.certificates import Authority
from tests.support.rogue import FULL, OK, Behaviour, Peer, Rogue, numbered

SECRET = "a Secret 7!"
_MOST_BYTES = 200 << 20


def endpoint(rogue: Rogue, tls: Tls | None = None, *, key: bool = False) -> Endpoint:
    return Endpoint(rogue.host, rogue.port, "dm", SECRET, tls=tls or Tls(), retrieves_key=key)


def refused(rogue: Rogue, spec: ErrorSpec, *, key: bool = False, tls: Tls | None = None) -> ShardmergeError:
    """Check that connecting fails soon with ``spec``; the error names the address, and no password is sent or shown."""
    begun = time.monotonic()
    with pytest.raises(ShardmergeError) as caught:
        connect(endpoint(rogue, tls, key=key), Side.SOURCE, name="s1").close()
    error = caught.value
    assert error.spec is spec, error
    assert f"{rogue.host}:{rogue.port}" in error.message
    assert error.workaround
    assert SECRET.encode() not in rogue.said and SECRET not in error.message
    assert time.monotonic() - begun < 3 * connection.CONNECT_SECONDS
    return error


def switching(method: str, data: bytes = bytes(range(1, 21)) + b"\0") -> Behaviour:
    """Send a greeting for one method, then request another one."""

    def behave(peer: Peer) -> None:
        peer.greet()
        peer.read()
        peer.switch(method, data)
        peer.read()

    return behave


def full_authentication(peer: Peer) -> None:
    peer.greet("caching_sha2_password")
    peer.read()
    peer.send(b"\x01\x04")
    peer.read()
    peer.send(b"\x01-----BEGIN PUBLIC KEY-----\nof a rogue")
    peer.read()


@pytest.mark.parametrize(
    "behaviour",
    [
        switching("mysql_clear_password"),
        switching("mysql_old_password"),
        switching(""),  # the method before MySQL 4.1
        switching("sha256_password"),
        switching("dialog", b"\x04Password: "),
        full_authentication,
    ],
    ids=["clear", "old", "older", "sha256", "dialog", "caching_sha2"],
)
def test_a_password_is_not_sent(behaviour: Behaviour) -> None:
    with Rogue(behaviour) as rogue:
        error = refused(rogue, errors.worker.LOGIN_REFUSED)
    assert not error.spec.retryable
    for way in ("ssl-ca", "allow-public-key-retrieval: true"):
        assert way in error.workaround


def test_a_greeting_that_asks_for_the_password_at_once() -> None:
    """The client does not begin with methods that reveal the password: the server's default is not that of the
    account."""

    def behave(peer: Peer) -> None:
        peer.greet("sha256_password")
        peer.read()
        peer.switch("mysql_clear_password")
        peer.read()

    with Rogue(behave) as rogue:
        refused(rogue, errors.worker.LOGIN_REFUSED)
        assert b"mysql_native_password" in rogue.said


@pytest.mark.parametrize("method", ["mysql_clear_password", "sha256_password", "dialog", "caching_sha2_password"])
@pytest.mark.parametrize("key", [False, True], ids=["no-key", "key"])
def test_tls_with_a_certificate_of_anybody_is_no_proof(tmp_path: Path, method: str, key: bool) -> None:
    server = context(tmp_path)

    def behave(peer: Peer) -> None:
        peer.greet(tls=True)
        if len(peer.read()) == 32:  # the client requests TLS
            peer.encrypt(server)
            peer.read()
        peer.switch(method, b"\x04Password: " if method == "dialog" else bytes(range(1, 21)) + b"\0")
        if method == "caching_sha2_password":
            peer.read()
            peer.send(b"\x01\x04")
        peer.read()

    with Rogue(behave) as rogue:
        if method == "caching_sha2_password" and key:
            # Without TLS, with the server's key: what this server sends is no key.
            refused(rogue, errors.relay.SOURCE_LOST, key=True)
            assert rogue.connections >= 2
        else:
            refused(rogue, errors.worker.LOGIN_REFUSED, key=key)


def context(directory: Path) -> ssl.SSLContext:
    files = Authority(directory / "anybody").issue("server", "server")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(files.cert, files.key)
    return made


def test_clear_text_goes_to_who_has_proved_who_he_is(tmp_path: Path) -> None:
    server = context(tmp_path)

    def behave(peer: Peer) -> None:
        peer.greet(tls=True)
        peer.read()
        peer.encrypt(server)
        peer.read()
        peer.switch("mysql_clear_password")
        peer.read()
        peer.send(OK)
        peer.obey(b"SELECT 7")
        peer.rows(("7",))
        peer.read()

    with Rogue(behave) as rogue:
        known = Tls(ca=str(tmp_path / "anybody" / "ca.pem"))
        with connect(endpoint(rogue, known), Side.SOURCE, name="s1") as session:
            assert rows(session, "SELECT 7") == [("7",)]
        assert SECRET.encode() + b"\0" in rogue.heard
    another = Authority(tmp_path / "another").ca
    with Rogue(behave) as rogue:
        refused(rogue, errors.worker.TLS_PEER_REFUSED, tls=Tls(ca=another))
        # With TLS options nothing is sent without TLS, not even a request for the key.
    with Rogue(full_authentication) as rogue:
        refused(rogue, errors.worker.TLS_NOT_OFFERED, tls=Tls(ca=another), key=True)


def endless_switches(peer: Peer) -> None:
    peer.greet()
    peer.read()
    while True:
        peer.switch("mysql_native_password")
        peer.read()


def endless_keys(peer: Peer) -> None:
    peer.greet("caching_sha2_password")
    peer.read()
    while True:
        peer.send(b"\x01\x03")


def _after_greeting(send: Behaviour) -> Behaviour:
    def behave(peer: Peer) -> None:
        peer.greet()
        peer.read()
        send(peer)

    return behave


def _full_packets(peer: Peer) -> None:
    number = peer.number
    while True:
        peer.raw(FULL + bytes([number % 256]) + bytes(0xFFFFFF))
        number += 1


LYING: dict[str, Behaviour] = {
    "endless-switches": endless_switches,
    "endless-keys": endless_keys,
    "endless-greeting": _full_packets,
    "endless-answer": _after_greeting(_full_packets),
    "endless-small-packets": _after_greeting(lambda peer: numbered(peer, b"\x01\x03")),
    "large-packet": lambda peer: peer.raw(b"\x00\x00\x80\x00" + bytes(1 << 20)),
    "empty-greeting": lambda peer: peer.send(b""),
    "short-greeting": lambda peer: peer.send(b"\x0a8.0"),
    "odd-version": lambda peer: peer.send(b"\x0a" + b"x" * 40),
    "short-salt": switching("caching_sha2_password", b"abc"),
    "no-login": _after_greeting(lambda peer: peer.send(b"\x05what")),
    "file-for-a-login": _after_greeting(lambda peer: peer.send(b"\xfb/etc/hostname")),
    "error-without-number": _after_greeting(lambda peer: peer.send(b"\xff")),
    "http": lambda peer: peer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 100),
}


@pytest.mark.parametrize("behaviour", LYING.values(), ids=LYING)
def test_a_login_has_an_end(behaviour: Behaviour) -> None:
    before = _peak()
    with Rogue(behaviour) as rogue:
        error = refused(rogue, errors.worker.ANSWER_REFUSED)
    assert not error.spec.retryable
    assert _peak() - before < _MOST_BYTES


@pytest.mark.parametrize("when", ["greeting", "login", "session"])
def test_bytes_that_drip_do_not_hold_a_thread(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 2)

    def behave(peer: Peer) -> None:
        if when == "greeting":
            peer.drip(b"\x50\0\0\0\x0a" + b"8" * 1000)
        elif when == "login":
            peer.greet()
            peer.read()
            peer.drip(b"\x50\0\0\2" + b"\xfe" * 1000)
        else:
            peer.let_in()
            peer.obey(b"SET SESSION")
            peer.drip(b"\x50\0\0\1" + b"\0" * 1000)

    with Rogue(behave) as rogue:
        begun = time.monotonic()
        refused(rogue, errors.relay.SOURCE_LOST)
        assert time.monotonic() - begun < 8


def answering(send: Behaviour) -> Behaviour:
    """Behave correctly until the client sends a certain statement."""

    def behave(peer: Peer) -> None:
        peer.let_in()
        peer.obey(b"asked")
        send(peer)
        peer.read()
        raise AssertionError(f"it goes on after {peer.heard[-1]!r}")

    return behave


def _columns(peer: Peer) -> None:
    peer.send(b"\xfe" + b"\xff" * 8)
    body = b"".join(bytes([len(text)]) + text for text in (b"def", b"", b"", b"", b"c", b""))
    numbered(peer, body + b"\x0c-\0\0\4\0\0\xfd\0\0\0\0\0")


def _endless_rows(peer: Peer) -> None:
    peer.rows(names=1)
    numbered(peer, b"\x01x")


ANSWERS: dict[str, Behaviour] = {
    "file": lambda peer: peer.send(b"\xfb/etc/hostname"),
    "endless-packet": _full_packets,
    "columns": _columns,
    "rows": _endless_rows,
    "lying-lengths": lambda peer: peer.rows(names=1) or peer.send(b"\xfc"),
    "lying-column": lambda peer: peer.send(b"\x01") or peer.send(b"\xfd\xff\xff\xff"),
    "empty": lambda peer: peer.send(b""),
    "wrong-number": lambda peer: peer.raw(b"\x01\0\0\x09\0"),
}


def _ask(session: Session) -> object:
    return ask(session, "SELECT 'asked'")


def _rows(session: Session) -> object:
    return rows(session, "SELECT 'asked'")


def _execute(session: Session) -> object:
    return execute(session, "SET @asked = 1")


def _raw_rows(session: Session) -> object:
    return [len(batch) for batch in raw_rows(session, b"SELECT 'asked'")]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("question", [_ask, _execute], ids=["ask", "execute"])
def test_a_short_answer_is_short(answer: Behaviour, question: object) -> None:
    _refused_answer(answer, question)


@pytest.mark.parametrize("name", ["file", "columns", "empty", "wrong-number"])
@pytest.mark.parametrize("question", [_rows, _raw_rows], ids=["rows", "raw"])
def test_any_answer_is_one(name: str, question: object) -> None:
    _refused_answer(ANSWERS[name], question)


def _refused_answer(answer: Behaviour, question: object) -> None:
    assert callable(question)
    before = _peak()
    with Rogue(answering(answer)) as rogue:
        where = endpoint(rogue)
        session = connect(where, Side.SOURCE, name="s1", read_timeout=10)
        with pytest.raises(ShardmergeError) as caught, coded_errors(where, Side.SOURCE, "s1"):
            question(session)
        assert caught.value.spec is errors.worker.ANSWER_REFUSED, caught.value
        assert f"{rogue.host}:{rogue.port}" in str(caught.value)
        assert not any(b"asked" in one for one in rogue.heard[rogue.heard.index(_last(rogue)) + 1 :])
        assert Path("/etc/hostname").read_bytes().strip() not in rogue.said or not Path("/etc/hostname").read_bytes()
    assert _peak() - before < _MOST_BYTES


def _last(rogue: Rogue) -> bytes:
    return next(one for one in rogue.heard if b"asked" in one)


def test_what_the_relay_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection of the dump has the same protection."""

    def behave(peer: Peer) -> None:
        peer.let_in()
        peer.obey(b"SELECT VERSION()")
        peer.send(b"\xfb/etc/passwd")
        peer.read()

    with Rogue(behave) as rogue, pytest.raises(ShardmergeError) as caught:
        Dump.connect("s1", endpoint(rogue))
    assert caught.value.spec is errors.worker.ANSWER_REFUSED


def test_an_event_has_an_end() -> None:
    def behave(peer: Peer) -> None:
        peer.let_in()
        peer.obey(b"SELECT VERSION()")
        peer.rows(("8.0.36", "MySQL", "1", "1", "h", "3306"))
        peer.obey(b"server_uuid")
        peer.rows(("server_uuid", "u"))
        while peer.read()[0] != 0x12:
            peer.send(OK)
        block = FULL + b"\0" + bytes(0xFFFFFF)
        while True:
            peer.raw(block)

    with Rogue(behave) as rogue:
        dump = Dump.connect("s1", endpoint(rogue))
        dump.begin(FromFile(SourcePosition("bin.000001", 4), seed=False), 7, "u")
        with pytest.raises(ShardmergeError) as caught:
            while True:
                dump.receive()
                while dump.event() is not None:
                    pass
        assert caught.value.spec is errors.relay.BAD_PACKET
        dump.close()


def test_an_error_is_reported_in_part() -> None:
    text = b"\xff\x15\x04#28000" + b"x" * 60_000
    with Rogue(_after_greeting(lambda peer: peer.send(text))) as rogue:
        error = refused(rogue, errors.relay.ACCESS_DENIED)
    assert len(error.message) < 2000


@pytest.fixture
def only() -> Iterator[object]:
    def use(*entries: str) -> None:
        networks.use(Networks.of(entries))

    yield use
    networks.use(None)


def test_addresses_that_are_not_allowed_are_not_connected_to(only: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(only)

    def behave(peer: Peer) -> None:
        peer.let_in()
        while peer.read():
            peer.send(OK)

    with Rogue(behave) as rogue:
        only("10.0.0.0/8", "::1")
        error = refused(rogue, errors.worker.ADDRESS_NOT_ALLOWED)
        assert not error.spec.retryable and "10.0.0.0/8" in error.message
        named = Endpoint("localhost", rogue.port, "dm", SECRET)
        with pytest.raises(ShardmergeError) as caught:
            only("192.0.2.0/24")
            connect(named, Side.TARGET, name="target")
        assert caught.value.spec is errors.worker.ADDRESS_NOT_ALLOWED
        # A name that has another address at a second look-up does not help: it is looked up once.
        looked_up: list[str] = []
        real = connection.socket.getaddrinfo

        def rebound(host: str, *args: object, **options: object) -> object:
            looked_up.append(host)
            return real("127.0.0.1" if len(looked_up) > 1 else "192.0.2.1", *args, **options)  # type: ignore[arg-type]

        only("127.0.0.0/8")
        monkeypatch.setattr(connection.socket, "getaddrinfo", rebound)
        with pytest.raises(ShardmergeError) as caught:
            connect(named, Side.SOURCE, name="s1")
        assert caught.value.spec is errors.worker.ADDRESS_NOT_ALLOWED and looked_up == ["localhost"]
        monkeypatch.undo()
        assert rogue.connections == 0 and rogue.heard == []
        for entry in ("127.0.0.0/8", "127.0.0.1", "LocalHost."):
            only(entry)
            connect(named, Side.SOURCE, name="s1").close()
        # The same address in IPv6 notation.
        only("127.0.0.0/8")
        connect(Endpoint("::ffff:127.0.0.1", rogue.port, "dm", SECRET), Side.SOURCE, name="s1").close()


def _peak() -> int:
    """Return the peak memory in bytes so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
