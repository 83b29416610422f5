"""Tests TLS between master, worker, Spark's tasks, dmctl and etcd: a task runs, and wrong certificates are reported."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography import x509

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec
from shardmerge.proto.tls.model import TlsFiles
from tests.support.certificates import Authority, serial_of
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon, Setting
from tests.support.etcd import Etcd
from tests.support.mariadb import MariaDB
from tests.support.ports import free_port
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer

pytestmark = [pytest.mark.spark, pytest.mark.turns]

CLUSTER = "shardmerge.cluster"


def serial_at(address: str, files: TlsFiles) -> int | None:
    """Return the serial number of the certificate at ``host:port``; None: no server has presented one in time."""
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    host, port = address.split(":")
    try:
        with (
            socket.create_connection((host, int(port)), 10) as connection,
            context.wrap_socket(connection, server_hostname=host) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
    except OSError:
        return None
    assert shown
    return x509.load_der_x509_certificate(shown).serial_number


def reachable_ports(daemon: Daemon) -> set[str]:
    """Return the addresses at which the daemon and its processes listen for other machines."""
    found: set[str] = set()
    for process in daemon.session():
        try:
            connections = process.net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        for connection in connections:
            address = connection.laddr
            if connection.status == psutil.CONN_LISTEN and not address.ip.endswith(("127.0.0.1", "::1")):
                found.add(f"{address.ip}:{address.port}")
    return found


def expiring(cluster: Cluster) -> set[tuple[str, str]]:
    """Return the members, and the sources of the task, that have a warning of a certificate."""
    found: set[tuple[str, str]] = set()
    status: Any = cluster.dmctl("query-status", "tls").json
    members: Any = cluster.dmctl("list-member").json
    groups = [("source", each["sourceStatus"]["source"], each["sourceStatus"]) for each in status["sources"]]
    groups += [(kind, each["name"], each) for kind in ("master", "worker") for each in members[f"{kind}s"]]
    for kind, name, group in groups:
        for warning in group["warnings"]:
            assert warning["name"] == "certificate-expiring", warning
            assert "cluster.pem) ends at " in warning["message"]
            assert "PRIVATE KEY" not in str(warning)
            found.add((kind, name))
    return found


def test_a_task_by_tls(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "pki")
    files = authority.issue("cluster", CLUSTER)
    operator = authority.issue("operator", "operator")
    names: dict[str, Setting] = {"cert-allowed-cn": [CLUSTER, "operator"]}
    source, target = make_server("source"), make_server("target")
    # Leases that outlast a kill and restart of etcd on a busy machine.
    cluster = make_cluster(
        workers=1,
        tls=files,
        master_settings={"worker-ttl": 120, **names},
        worker_settings={"keepalive-ttl": 120, **names},
    )
    [worker], [master] = cluster.workers, cluster.masters
    assert reachable_ports(worker) == set()
    cluster.create_source("mysql-01", source)
    family = Family("tls", (("mysql-01", source),), target)
    shards = family.create(200)
    with Writer(shards, seed=77) as writer:
        cluster.start_task(family.task())
        cluster.wait_replicating("tls")

        # A refused client gets the reason.
        def refused(tls: TlsFiles, spec: ErrorSpec) -> str:
            answer = cluster.dmctl("query-status", tls=tls, check=False)
            assert answer.code == 1
            assert f"[{spec.code} {spec.name}]" in answer.text
            assert "PRIVATE KEY" not in answer.text
            return answer.text

        cluster.dmctl("query-status", tls=operator)
        stranger = Authority(tmp_path / "other pki", "another authority")
        theirs = stranger.issue("operator", "operator")
        refused(theirs, errors.tls.PEER_NOT_TRUSTED)
        refused(replace(theirs, ca=authority.ca), errors.tls.OWN_REFUSED)
        said = refused(authority.issue("somebody", "somebody"), errors.tls.NAME_REFUSED)
        assert "dm-master master-1 takes no calls from the certificate of somebody" in said
        refused(authority.issue("old", "operator", days=-2), errors.tls.NOT_VALID_NOW)

        # New certificates replace the old ones: both daemons present them, as servers and as clients.
        pids = [daemon.pid for daemon in cluster.daemons]
        [before] = cluster.wait_replicating("tls").values()
        assert expiring(cluster) == set()
        authority.issue("cluster", CLUSTER, days=5)
        for daemon in (worker, master):
            until(lambda: serial_at(daemon.address, files) == serial_of(files.cert), "it shows the new one")  # noqa: B023
        cluster.dmctl("query-status", "tls")
        [after] = cluster.wait_replicating("tls").values()
        assert after.raw["epoch"] == before.raw["epoch"], "connections that were made stay"
        # Both daemons report that they end soon. The leader asks workers every 10 seconds.
        everywhere = {("source", "mysql-01"), ("worker", worker.name), ("master", master.name)}
        until(lambda: expiring(cluster) == everywhere, "warnings of certificates", 60)

        # Certificates of a new authority, in two steps: all processes trust it before any of them presents its
        # certificates.
        both = Path(files.ca).read_text() + Path(stranger.ca).read_text()
        Path(files.ca).write_text(both)
        theirs = stranger.issue("cluster", CLUSTER)
        Path(theirs.key).replace(files.key)
        Path(theirs.cert).replace(files.cert)
        for daemon in (worker, master):
            until(lambda: serial_at(daemon.address, files) == serial_of(files.cert), "it shows the other's")  # noqa: B023
        cluster.etcd.kill()  # the daemons must reconnect with the new certificate
        cluster.etcd.start()
        cluster.dmctl("pause-task", "tls")
        # A missing file: the daemons continue with the contents they have read, new lanes report it and wait for it.
        Path(files.key).rename(f"{files.key}.away")
        cluster.dmctl("resume-task", "tls", tls=operator, check=False)
        wanted = f"ended without a result: [{errors.tls.FILE_UNUSABLE.code} "
        until(lambda: wanted in worker.log.read_text(), "the lanes' failure is told")
        Path(f"{files.key}.away").rename(files.key)
        cluster.wait_replicating("tls")
        assert pids == [daemon.pid for daemon in cluster.daemons]
        writer.stop()
    cluster.wait_caught_up("tls", {"mysql-01": source})
    assert family.verdict().differences == 0, family.verdict()
    cluster.compare("tls")
    for daemon in cluster.daemons:
        log = daemon.log.read_text()
        assert "PRIVATE KEY" not in log
        assert "certificates replaced" in log
        assert f"[{errors.tls.PEER_PLAIN.code} " not in log


@pytest.mark.grid
def test_turned_on_while_a_task_runs(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """Follows the order of docs/how-to/tls.md: etcd at a socket and a port, workers, masters, while rows are
    replicated."""
    files = Authority(tmp_path / "pki").issue("cluster", CLUSTER)
    source, target = make_server("source"), make_server("target")
    cluster = make_cluster(workers=1)
    [worker], [master] = cluster.workers, cluster.masters
    cluster.create_source("mysql-01", source)
    family = Family("turned_on", (("mysql-01", source),), target)
    shards = family.create(50)
    with Writer(shards, seed=78) as writer:
        cluster.start_task(family.task())
        cluster.wait_replicating("turned_on")
        secured = f"127.0.0.1:{free_port()}"
        cluster.etcd.options = (
            f"--listen-client-urls=unix://etcd:0,https://{secured}",
            f"--cert-file={files.cert}",
            f"--key-file={files.key}",
            f"--trusted-ca-file={files.ca}",
            "--client-cert-auth",
        )
        cluster.etcd.kill()
        cluster.etcd.start()

        def turn(daemon: Daemon) -> None:
            daemon.terminate()
            keys = {key.replace("-", "_"): value for key, value in keys_of(files).items()}
            daemon.write_config(etcd=[f"https://{secured}"], **keys)
            daemon.start()

        turn(worker)
        # After the worker has registered again.
        until(
            lambda: f"{errors.tls.PEER_WANTS_TLS.code}" in cluster.dmctl("query-status", "turned_on", check=False).text,
            "the master is told why the worker does not answer",
        )
        writer.go_on()
        writer.pause()
        until(lambda: family.verdict().differences == 0, "rows flow to the target", every=1.0)
        writer.resume()
        turn(master)
        cluster.tls = files
        cluster.wait_replicating("turned_on")
        writer.stop()
    cluster.wait_caught_up("turned_on", {"mysql-01": source})
    assert family.verdict().differences == 0, family.verdict()


# --- daemons with wrong settings


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def plain_etcd(tmp_path: Path) -> Iterator[Etcd]:
    made = Etcd(tmp_path / "etcd").start()
    yield made
    made.stop()


def keys_of(files: TlsFiles) -> dict[str, Setting]:
    return {"ssl-ca": files.ca, "ssl-cert": files.cert, "ssl-key": files.key}


@pytest.mark.parametrize("kind", ["master", "worker"])
def test_files_that_a_daemon_does_not_start_with(authority: Authority, tmp_path: Path, kind: str) -> None:
    right = authority.issue("right", CLUSTER)

    def gives_up(settings: dict[str, Setting], spec: ErrorSpec) -> None:
        daemon = Daemon(kind, f"wrong-{spec.code}", tmp_path, settings, {})
        daemon.start(wait=False)
        try:
            until(lambda: not daemon.alive, "it gives up")
            said = daemon.log.read_text()
            assert f"[{spec.code} {spec.name}]" in said
            assert "Traceback" not in said
        finally:
            daemon.stop()

    gives_up(keys_of(replace(right, key="/nowhere")), errors.tls.FILE_UNUSABLE)
    gives_up(keys_of(replace(right, key=authority.issue("other", "x").key)), errors.tls.KEY_DIFFERS)
    gives_up(keys_of(authority.issue("old", CLUSTER, days=-1)), errors.tls.NOT_VALID_NOW)
    gives_up({**keys_of(right), "cert-allowed-cn": ["operator"]}, errors.tls.OWN_NAME)
    gives_up({"ssl-ca": right.ca}, errors.config.INVALID)


def test_an_etcd_without_tls(authority: Authority, tmp_path: Path) -> None:
    """The daemon does not use plain text with etcd unless its configuration requests it, and allows that others do."""
    plain_etcd = Etcd(tmp_path / "etcd", host="127.0.0.1").start()
    files = authority.issue("right", CLUSTER)
    Path(files.key).chmod(0o644)
    daemon = Daemon("master", "m1", tmp_path, {**keys_of(files), "etcd": [plain_etcd.endpoint]}, {}).start()
    try:
        wanted = f"[{errors.tls.PEER_PLAIN.code} {errors.tls.PEER_PLAIN.name}] {plain_etcd.endpoint}"
        until(lambda: wanted in daemon.log.read_text(), "it says so")
        assert f"[{errors.tls.KEY_READABLE.code} " in daemon.log.read_text()
        daemon.stop()
        daemon.write_config(etcd=[f"http://{plain_etcd.endpoint}"], insecure="true")
        size = len(daemon.log.read_text())
        daemon.start()
        until(lambda: b"revision=" in daemon.log.read_bytes()[size:], "it leads")
    finally:
        daemon.stop()
        plain_etcd.stop()


def test_an_etcd_with_tls(authority: Authority, tmp_path: Path) -> None:
    """etcd has certificates of its own authority, and the daemons use plain text among themselves."""
    apart = Authority(tmp_path / "etcd pki", "etcd's authority")
    etcd = Etcd(tmp_path / "etcd", tls=apart.issue("etcd", "etcd")).start()
    daemon = Daemon("master", "m1", tmp_path, {"etcd": [etcd.endpoint]}, {}).start()
    try:
        wanted = f"[{errors.tls.PEER_WANTS_TLS.code} {errors.tls.PEER_WANTS_TLS.name}] {etcd.endpoint}"
        until(lambda: wanted in daemon.log.read_text(), "it says so")
        daemon.stop()
        daemon.write_config(**keys_of_etcd(authority.issue("right", CLUSTER)))
        daemon.start()
        wanted = f"[{errors.tls.PEER_NOT_TRUSTED.code} {errors.tls.PEER_NOT_TRUSTED.name}]"
        until(lambda: wanted in daemon.log.read_text(), "it says so")
        daemon.stop()
        daemon.write_config(**keys_of_etcd(apart.issue("client", "master")))
        size = len(daemon.log.read_text())
        daemon.start()
        until(lambda: b"revision=" in daemon.log.read_bytes()[size:], "it leads")
    finally:
        daemon.stop()
        etcd.stop()


def test_a_daemon_at_an_address_that_is_not_in_its_certificate(
    authority: Authority, plain_etcd: Etcd, tmp_path: Path
) -> None:
    """No other process could connect to it: the error appears at its start, not when the first lane fails."""
    files = authority.issue("elsewhere", CLUSTER, hosts=("master.example",))
    settings = {**keys_of(files), "etcd": [plain_etcd.endpoint]}
    daemon = Daemon("master", "m1", tmp_path, settings, {}).start()
    try:
        wanted = (
            f"[{errors.tls.PEER_NAME.code} {errors.tls.PEER_NAME.name}] the certificate that {daemon.address} shows"
        )
        until(lambda: wanted in daemon.log.read_text(), "it says so")
    finally:
        daemon.stop()


def keys_of_etcd(files: TlsFiles) -> dict[str, Setting]:
    return {"etcd_ssl_ca": files.ca, "etcd_ssl_cert": files.cert, "etcd_ssl_key": files.key}
