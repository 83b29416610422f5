"""Tests the HTTP endpoints of real daemons: probes during a change of the leader, health over gRPC, addresses, TLS."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from shardmerge.proto import errors, secret
from tests.support.certificates import Authority, end_of
from tests.support.daemon import Daemon
from tests.support.dmctl import dmctl
from tests.support.etcd import Etcd
from tests.support.metrics import parse, request, scrape
from tests.support.wait import until

pytestmark = pytest.mark.turns

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
def masters(etcd: Etcd, tmp_path: Path) -> Iterator[list[Daemon]]:
    """Return two masters that are not started."""
    made = [Daemon("master", f"m{n}", tmp_path, {"etcd": [etcd.endpoint], "worker-ttl": 2}, {}) for n in (1, 2)]
    yield made
    for master in made:
        master.stop()


def _status(daemon: Daemon, path: str) -> int:
    """Return the status of a page; 0 if nobody answers."""
    try:
        return request(daemon, path).status
    except OSError:
        return 0


def _health(daemon: Daemon, service: str = "") -> int:
    with grpc.insecure_channel(daemon.address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        return check(health_pb2.HealthCheckRequest(service=service), timeout=10).status


def _leaders(masters: list[Daemon]) -> list[str]:
    return [each.name for each in masters if _status(each, "/leader") == 200]


def test_probes_during_a_change_of_the_leader(masters: list[Daemon], etcd: Etcd) -> None:
    for master in masters:
        master.start()
    until(lambda: len(_leaders(masters)) == 1, "one master leads")
    until(lambda: all(_status(each, "/readyz") == 200 for each in masters), "both are ready")
    leader, follower = sorted(masters, key=lambda each: each.name not in _leaders(masters))
    assert (_status(leader, "/readyz?role=leader"), _status(follower, "/readyz?role=leader")) == (200, 503)
    assert _status(follower, "/leader") == 503
    assert [scrape(each).one("dm_leader") for each in (leader, follower)] == [1, 0]
    assert scrape(leader).of("dm_masters") and not scrape(follower).of("dm_masters")
    assert json.loads(request(leader, "/version").text)["daemon"] == "dm-master"

    leader.signal(signal.SIGKILL)
    until(lambda: _leaders(masters) == [follower.name], "the other one leads")
    assert _status(follower, "/readyz?role=leader") == 200
    assert scrape(follower).one("dm_master_start_leader_counter") == 1

    # Without etcd it is not ready; it lives: a restart would change nothing. Health over gRPC agrees.
    assert _health(follower) == _SERVING
    etcd.stop()
    until(lambda: _status(follower, "/readyz") == 503, "it is not ready without etcd")
    assert "no lease in etcd" in request(follower, "/readyz").text
    until(lambda: _health(follower) == _NOT_SERVING, "health agrees")
    assert _health(follower, "shardmerge.v1.Master") == _NOT_SERVING
    assert (_status(follower, "/livez"), _status(follower, "/leader")) == (200, 503)
    assert _status(follower, "/metrics") == 200
    etcd.start()
    until(lambda: _status(follower, "/readyz") == 200 and _health(follower) == _SERVING, "it is ready again")


def test_a_daemon_ends_while_a_caller_holds_a_connection_open(masters: list[Daemon]) -> None:
    master = masters[0].start()
    host, _, port = master.http.rpartition(":")
    with socket.create_connection((host, int(port))) as idle, socket.create_connection((host, int(port))) as begun:
        begun.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        began = time.monotonic()
        assert master.terminate(seconds=60) == 0
        assert time.monotonic() - began < 8
        assert (idle.recv(1), begun.recv(1)) == (b"", b"")


def test_the_address_is_configured_or_chosen(masters: list[Daemon]) -> None:
    master = masters[0]
    chosen = f"127.0.0.1:{int(master.address.rpartition(':')[2]) + 1000}"
    with socket.create_server(("127.0.0.1", int(chosen.rpartition(":")[2]))):
        master.write_config(http_addr="auto")
        master.start()
        assert "no HTTP endpoint" in master.log.read_text()
        assert "another process listens there" in master.log.read_text()
        master.kill()
        master.write_config(http_addr=chosen)
        master.start(wait=False)
        until(lambda: not master.alive, "it ends: the configured address is in use")
        assert f"[{errors.master.CANNOT_LISTEN.code} " in master.log.read_text()
    master.http = chosen
    master.write_config(http_addr="auto")
    master.start()
    assert _status(master, "/livez") == 200
    assert f"http://{chosen}/metrics" in master.log.read_text()


def test_without_tls_prometheus_sends_the_token_of_dmctl(masters: list[Daemon]) -> None:
    """Every user of the machine reaches the port."""
    master = masters[0]
    master.write_config(insecure="true")
    master.start()
    assert "dm_leader" in request(master, "/metrics", headers={}).text
    master.kill()
    master.write_config()
    master.start()
    printed = dmctl(["encrypt", "--metrics-token", "--secret-key-path", str(master.key)], os.environ, 60)
    sent = {"Authorization": f"Bearer {printed.stdout.strip()}"}
    assert "dm_leader" in request(master, "/metrics", headers=sent).text
    refused = request(master, "/metrics", headers={})
    assert refused.status == 401 and "dm_" not in refused.text
    assert "metrics refused" in master.log.read_text() and printed.stdout.strip() not in master.log.read_text()

    # The token of a key that replaces this one counts at once, and the former one until its line is removed.
    secret.add_key(str(master.key))
    secret.rotate_keys(str(master.key))
    assert sent["Authorization"] != f"Bearer {master.metrics_token}"
    assert [request(master, "/metrics", headers=each).status for each in (None, sent, {})] == [200, 200, 401]
    first, *_ = master.key.read_text().splitlines()
    master.key.write_text(f"{first}\n")
    until(lambda: request(master, "/metrics", headers=sent).status == 401, "the former one is worth nothing")


def test_with_tls_prometheus_shows_a_certificate(masters: list[Daemon], etcd: Etcd, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    own, prometheus = authority.issue("own", "dm"), authority.issue("prometheus", "prometheus")
    master = masters[0]
    master.write_config(etcd=[etcd.endpoint], ssl_ca=own.ca, ssl_cert=own.cert, ssl_key=own.key, cert_allowed_cn=["dm"])
    master.start()
    host, _, port = master.http.rpartition(":")

    texts: list[str] = []

    def status(cert: str, key: str) -> int:
        context = ssl.create_default_context(cafile=authority.ca)
        context.load_cert_chain(cert, key)
        connection = HTTPSConnection(host, int(port), context=context, timeout=20)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            texts.append(answer.read().decode())
            return answer.status
        except OSError:
            return 0
        finally:
            connection.close()

    def ends() -> dict[str, float]:
        assert status(own.cert, own.key) == 200
        found = parse(texts[-1]).of("dm_certificate_expiry_timestamp_seconds")
        return {each.labels["use"]: each.value for each in found}

    until(ends, "the certificates are read")
    assert ends() == {"ca": end_of(own.ca), "own": end_of(own.cert)}, "not for etcd, which has no TLS here"
    assert status(prometheus.cert, prometheus.key) == 0, "its name is not allowed"
    assert _status(master, "/metrics") == 0, "plain text"
