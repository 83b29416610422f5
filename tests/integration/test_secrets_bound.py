"""Tests that a password which was copied in etcd to the record of another server is not sent there."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors, etcd_keys
from shardmerge.proto import state_pb2 as state
from tests.support.certificates import Authority
from tests.support.cluster import Cluster, source_yaml
from tests.support.mariadb import MariaDB
from tests.support.rogue import Peer, Rogue
from tests.support.wait import until

pytestmark = pytest.mark.turns

PASSWORD = "source-Geheim-4715"


def test_a_copied_password_is_not_sent_to_another_server(tmp_path: Path) -> None:
    server = MariaDB(tmp_path / "source", 101)
    server.start()
    server.execute(f"CREATE USER m@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'", "GRANT ALL ON *.* TO m@'127.0.0.1'")
    authority = Authority(tmp_path / "of the attacker")
    files = authority.issue("server", "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)

    def behave(peer: Peer) -> None:
        peer.greet(tls=True)
        peer.read()
        peer.encrypt(context)
        peer.read()
        peer.switch("mysql_clear_password")
        peer.read()

    try:
        with Cluster(tmp_path / "cluster", workers=2) as cluster, Rogue(behave) as rogue:
            cluster.dmctl(
                "operate-source", "create", cluster.write("s.yaml", source_yaml("mysql-01", server, "m", PASSWORD))
            )
            with cluster.etcd.client() as client:
                record = client.get(etcd_keys.source("mysql-01"))
                assert record is not None and PASSWORD.encode() not in record.value
                stored = etcd_keys.decode(state.SourceRecord, record.value, record.key).config
                evil = config_pb2.SourceConfig()
                evil.CopyFrom(stored)
                evil.source_id = "evil"
                endpoint: config_pb2.Endpoint = getattr(evil, "from")
                endpoint.port = rogue.port
                endpoint.tls.ca_content = Path(authority.ca).read_text()
                client.put(etcd_keys.source("evil"), etcd_keys.encode(state.SourceRecord(config=evil)))
            expected = f"[{errors.config.SECRET_OF_ANOTHER_SERVER.code} secret-of-another-server]"

            def is_reported() -> bool:
                shown = cluster.dmctl("operate-source", "show", check=False).text
                return expected in shown or PASSWORD.encode() in rogue.said

            until(is_reported, "the worker reports that the password belongs to another server")
            assert PASSWORD.encode() not in rogue.said
            assert rogue.connections == 0
            log = cluster.worker_of("evil").log.read_text()
            assert expected in log and f"the password of m@127.0.0.1:{rogue.port}" in log
            assert b"enc:v1:" not in record.value, "nothing unbound is stored"
    finally:
        server.stop()
