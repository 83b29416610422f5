"""Tests that a daemon refuses an etcd that answers callers without an identity, and uses a protected one."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from shardmerge.proto import errors
from shardmerge.proto.etcd.access import reached_by_others
from shardmerge.proto.tls.model import TlsFiles
from tests.support.certificates import Authority
from tests.support.daemon import Daemon, Setting
from tests.support.etcd import Etcd
from tests.support.wait import until

_CODE = f"[{errors.tls.OPEN_ETCD.code} {errors.tls.OPEN_ETCD.name}]"


@pytest.fixture
def private() -> Iterator[Path]:
    """Provide a folder of mode 0700 whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="sm-") as folder:
        yield Path(folder)


@contextmanager
def _running(etcd: Etcd) -> Generator[Etcd]:
    etcd.start()
    try:
        yield etcd
    finally:
        etcd.stop()


def _started(kind: str, etcd: Etcd, directory: Path, tls: TlsFiles | None = None, **settings: Setting) -> str:
    """Start a daemon, end it, and return its log."""
    directory.mkdir(exist_ok=True)
    keys = {} if tls is None else {"etcd-ssl-ca": tls.ca, "etcd-ssl-cert": tls.cert, "etcd-ssl-key": tls.key}
    relay = {"relay-dir": str(directory / "relay")} if kind == "worker" else {}
    daemon = Daemon(kind, "d", directory, {"etcd": [etcd.endpoint], **keys, **relay, **settings}, {}, spark=False)
    daemon.start(wait=False)
    try:
        until(lambda: not daemon.alive or b"listening" in daemon.log.read_bytes(), "it listens, or has ended")
        return daemon.log.read_text()
    finally:
        daemon.stop()


def _refused(kind: str, etcd: Etcd, directory: Path) -> None:
    logged = _started(kind, etcd, directory)
    assert _CODE in logged and "what to do:" in logged and "listening" not in logged


@pytest.mark.parametrize("kind", ["master", "worker"])
def test_a_socket_in_a_private_folder(kind: str, private: Path, tmp_path: Path) -> None:
    with _running(Etcd(tmp_path / "etcd", private=private)) as etcd:
        ports = [one for one in psutil.Process(etcd.pid).net_connections("inet") if one.status == psutil.CONN_LISTEN]
        assert ports == [], "other users could write as a member"
        logged = _started(kind, etcd, tmp_path)
        assert "listening" in logged and _CODE not in logged
        # After kill -9 the file of the socket remains, which delays nothing.
        etcd.kill()
        etcd.start()
        assert _CODE not in _started(kind, etcd, tmp_path)


def test_a_socket_that_others_reach(private: Path, tmp_path: Path) -> None:
    with _running(Etcd(tmp_path / "etcd", private=private)) as etcd:
        (private / "etcd:0").chmod(0o777)
        assert not reached_by_others(private / "etcd:0")
        private.chmod(0o755)
        assert reached_by_others(private / "etcd:0")
        _refused("master", etcd, tmp_path)


@pytest.mark.parametrize("kind", ["master", "worker"])
def test_loopback_in_plain_text_is_refused(kind: str, tmp_path: Path) -> None:
    """Every user of the machine reaches it."""
    with _running(Etcd(tmp_path / "etcd", host="127.0.0.1")) as etcd:
        _refused(kind, etcd, tmp_path)
        logged = _started(kind, etcd, tmp_path / "insecure", insecure="true")
        assert _CODE in logged and "listening" in logged


@pytest.mark.parametrize("kind", ["master", "worker"])
def test_an_open_etcd_that_was_away_at_the_start(kind: str, tmp_path: Path) -> None:
    etcd = Etcd(tmp_path / "etcd", host="127.0.0.1")
    relay = {"relay-dir": str(tmp_path / "relay")} if kind == "worker" else {}
    daemon = Daemon(kind, "d", tmp_path, {"etcd": [etcd.endpoint], **relay}, {}, spark=False)
    daemon.start(wait=False)
    try:
        until(lambda: b"listening" in daemon.log.read_bytes(), "it listens")
        with _running(etcd):
            until(lambda: not daemon.alive, f"it ends: {daemon.last_lines()}", 60)
            assert _CODE in daemon.log.read_text()
            assert daemon.exit_code == 1
    finally:
        daemon.stop()


@pytest.mark.parametrize("verified", [True, False], ids=["with client certificates", "without"])
def test_tls(verified: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca", "authority")
    options = () if verified else ("--client-cert-auth=false", "--trusted-ca-file=")
    with _running(Etcd(tmp_path / "etcd", options, authority.issue("etcd", "etcd"))) as etcd:
        logged = _started("master", etcd, tmp_path, authority.issue("master", "master"))
    assert ("listening" in logged) is verified
    assert (_CODE in logged) is not verified


@pytest.mark.turns
@pytest.mark.parametrize("kind", ["master", "worker"])
def test_other_machines_reach_it(kind: str, tmp_path: Path) -> None:
    host = _own_address()
    if host is None:
        pytest.skip("this machine has no address but loopback")
    with _running(Etcd(tmp_path / "etcd", host=host)) as etcd:
        _refused(kind, etcd, tmp_path)
        logged = _started(kind, etcd, tmp_path / "insecure", insecure="true")
        assert _CODE in logged and "listening" in logged


def _own_address() -> str | None:
    """Return an address of this machine that is not loopback. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = str(probe.getsockname()[0])
    return None if found.startswith("127.") or os.environ.get("SHARDMERGE_ONLY_LOOPBACK") else found
