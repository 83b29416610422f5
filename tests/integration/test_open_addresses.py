"""Tests addresses that other machines can reach: with TLS files of `dmctl tls init`, or by permission; all interfaces;
and failures to listen."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ErrorSpec
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc.client import channel
from shardmerge.proto.tls.model import TlsFiles
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon, command
from tests.support.etcd import Etcd
from tests.support.ports import free_port
from tests.support.wait import until

pytestmark = [pytest.mark.spark, pytest.mark.turns]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.stop()


def _daemon(kind: str, etcd: Etcd, folder: Path, name: str, **settings: str) -> Daemon:
    made = Daemon(kind, name, folder, {"etcd": [etcd.endpoint]}, {})
    made.write_config(**settings)
    return made


def _says(daemon: Daemon, spec: ErrorSpec) -> str:
    daemon.start(wait=False)
    until(lambda: not daemon.alive, f"{daemon.name} ends")
    text = daemon.log.read_text()
    assert f"[{spec.code} {spec.name}]" in text, text
    daemon.log.write_text("")
    return text


def _dmctl(*arguments: str, key: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) if key is None else {**os.environ, "SHARDMERGE_SECRET_KEY": str(key)}
    return subprocess.run(
        [command("dmctl"), *arguments], capture_output=True, text=True, check=False, timeout=300, env=environment
    )


def test_an_open_address_needs_tls_or_leave(etcd: Etcd, tmp_path: Path) -> None:
    for kind in ("master", "worker"):
        daemon = _daemon(kind, etcd, tmp_path, kind)
        port = daemon.address.rpartition(":")[2]
        for host in ("", "0.0.0.0", "[::]", "db.example"):
            daemon.write_config(**{f"{kind}_addr": f"{host}:{port}"})
            said = _says(daemon, errors.config.OPEN_ADDRESS)
            assert "dmctl tls init" in said and "insecure: true" in said
        daemon.write_config(advertise_addr="db.example:1")
        assert "advertise-addr" in _says(daemon, errors.config.OPEN_ADDRESS)


def test_every_interface_with_leave(etcd: Etcd, tmp_path: Path) -> None:
    """``:PORT`` as documented: by IPv4 and, where the machine has it, IPv6; open addresses are reported."""
    master = _daemon("master", etcd, tmp_path, "m1", master_addr=f":{free_port()}")
    port = free_port()
    master.write_config(master_addr=f":{port}", advertise_addr="", insecure="true")
    master.address = f"127.0.0.1:{port}"
    try:
        master.start()
        hosts = ["127.0.0.1", *(["[::1]"] if _has_ipv6() else [])]
        for host in hosts:
            with channel(f"{host}:{port}") as opened:
                stub = MasterStub(opened)
                until(
                    lambda: stub.ListMember(pb.ListMemberRequest(), timeout=10).HasField("leader"),  # noqa: B023
                    "it leads",
                )
        ask = partial(_dmctl, "--master-addr", master.address, key=master.key)
        answer = json.loads(ask("--output", "json", "list-member").stdout)
        [member] = answer["masters"]
        assert member["insecure"] is True
        assert member["addr"] == f"{socket.gethostname()}:{port}"
        assert "(insecure)" in ask("--output", "table", "list-member").stdout
        assert "insecure: true" in ask("config", "master", "m1").stdout
        assert f"[{errors.tls.INSECURE.code} {errors.tls.INSECURE.name}]" in master.log.read_text()
    finally:
        master.stop()


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_what_is_in_the_way_of_listening_is_reported(etcd: Etcd, tmp_path: Path) -> None:
    master = _daemon("master", etcd, tmp_path, "m1")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        master.write_config(master_addr=f"127.0.0.1:{other.getsockname()[1]}")
        assert "another process listens there" in _says(master, errors.master.CANNOT_LISTEN)
    master.write_config(master_addr=f"198.51.100.1:{free_port()}", insecure="true")
    said = _says(master, errors.master.CANNOT_LISTEN)
    assert "this machine has no such address" in said and "another process" not in said
    master.write_config(master_addr=f"no-such-host.invalid:{free_port()}", insecure="true")
    assert "the host no-such-host.invalid is not known" in _says(master, errors.master.CANNOT_LISTEN)


def _files(folder: Path, name: str) -> TlsFiles:
    return TlsFiles(str(folder / "ca.pem"), str(folder / f"{name}.pem"), str(folder / f"{name}.key"))


def test_a_cluster_by_the_files_of_tls_init(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "tls"
    here = socket.gethostname()
    made = _dmctl("tls", "init", "--dir", str(folder), f"master-1=10.0.0.1,{here}", "worker-1=worker.example,::1")
    assert made.returncode == 0, made.stderr
    # The certificate of etcd is issued later by the same authority.
    assert _dmctl("tls", "init", "--dir", str(folder), "etcd-1").returncode == 0
    names = ("ca", "master-1", "worker-1", "dmctl", "etcd-1")
    files = {f"{name}.{kind}" for name in names for kind in ("pem", "key")}
    assert {path.name for path in folder.iterdir()} == {*files, "ca.crl"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}

    ends = {"etcd": _files(folder, "etcd-1"), "dmctl": _files(folder, "dmctl")}
    cluster = Cluster(tmp_path / "cluster", workers=1, tls=ends["dmctl"])
    cluster.etcd.tls = ends["etcd"]
    for daemon in cluster.daemons:
        files = _files(folder, daemon.name)
        daemon.write_config(ssl_ca=files.ca, ssl_cert=files.cert, ssl_key=files.key)
    with cluster:
        [master], [worker] = cluster.masters, cluster.workers
        assert [one["insecure"] for one in cluster.dmctl("list-member").json["workers"]] == [False]
        # With its certificate dmctl may use the commands that otherwise need the Unix socket.
        cluster.dmctl("config", "export", "-p", str(tmp_path / "exported"), check=False)
        assert (tmp_path / "exported" / "subtasks.json").exists()
        # A client is refused: without a certificate, with one of another authority, in plain text.
        for files in (
            None,
            Authority(tmp_path / "other", "another").issue("dmctl", "dmctl"),
        ):
            for daemon in (master, worker):
                assert not _may_call(daemon.address, str(folder / "ca.pem"), files)
        for daemon in (master, worker):
            with grpc.insecure_channel(daemon.address) as plain, pytest.raises(grpc.RpcError):
                MasterStub(plain).ListMember(pb.ListMemberRequest(), timeout=10)
        stranger = _dmctl("--master-addr", master.address, "list-member")
        assert stranger.returncode == 1 and errors.tls.PEER_WANTS_TLS.name in stranger.stderr


def _may_call(address: str, ca: str, files: TlsFiles | None) -> bool:
    """Return whether a client that trusts the server and presents this certificate, or none, gets an answer."""
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    if files is not None:
        context.load_cert_chain(files.cert, files.key)
    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), 10) as connection,
            context.wrap_socket(connection, server_hostname=host) as secured,
        ):
            secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            return bool(secured.recv(1))
    except OSError:
        return False


def test_what_tls_init_makes_and_refuses(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    made = _dmctl("tls", "init", "--dir", str(folder), "--output", "table", "worker-1=10.0.0.2,worker.example")
    assert "ssl-cert: /etc/shardmerge/tls/worker-1.pem" in made.stdout and "--ssl-key" in made.stdout
    certificate = x509.load_pem_x509_certificate((folder / "worker-1.pem").read_bytes())
    [name] = certificate.subject
    assert name.value == "worker-1"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["worker.example", "localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.2", "127.0.0.1"]
    days = (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    assert (days, (authority.not_valid_after_utc - authority.not_valid_before_utc).days) == (825, 3650)
    certificate.verify_directly_issued_by(authority)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    said = {
        "worker-1=10.0.0.3": "it exists already",
        "worker-2=10.0.0.3:8262": "leave the port out",
        "a/b=10.0.0.3": "a name has letters",
        "ca": "a name has letters",
    }
    for member, reason in said.items():
        refused = _dmctl("tls", "init", "--dir", str(folder), "worker-9", member)
        assert refused.returncode != 0 and reason in refused.stderr, refused
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert "it contains other files" in _dmctl("tls", "init", "--dir", str(tmp_path / "full"), "a").stderr
    (folder / "ca.key").rename(tmp_path / "ca.key")
    assert "one of ca.pem and ca.key" in _dmctl("tls", "init", "--dir", str(folder), "worker-2").stderr
    (tmp_path / "ca.key").rename(folder / "ca.key")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
