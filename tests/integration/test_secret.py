"""Tests passwords with a key: none in etcd, logs or answers; and the errors where the key is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import errors, secret
from tests.support.cluster import Cluster, source_yaml
from tests.support.mariadb import MariaDB
from tests.support.wait import until

pytestmark = pytest.mark.turns

OF_SOURCE = "source-Geheim-4711"
OF_TARGET = "target-Geheim-4712"


def task(target: MariaDB, password: str) -> str:
    return (
        "name: sealed\ntask-mode: all\n"
        f"target-database: {{host: {target.host}, port: {target.port}, user: m, password: '{password}'}}\n"
        "mysql-instances:\n  - source-id: mysql-01\n    block-allow-list: one\n"
        "block-allow-list:\n  one: {do-dbs: [sealed]}\n"
    )


def assert_sealed(cluster: Cluster) -> None:
    """Check that no record of etcd holds a password."""
    with cluster.etcd.client() as client:
        records = client.get_prefix("/").records
    assert any(b"sealed" in record.value for record in records)
    for secret_text in (OF_SOURCE, OF_TARGET):
        assert not [record.key for record in records if secret_text.encode() in record.value]


@pytest.fixture
def servers(tmp_path: Path) -> tuple[MariaDB, MariaDB]:
    return MariaDB(tmp_path / "source", 101), MariaDB(tmp_path / "target", 201)


def test_a_password_is_nowhere_to_be_read(servers: tuple[MariaDB, MariaDB], tmp_path: Path) -> None:
    source, target = servers
    key = str(tmp_path / "key")
    secret.new_key(key)
    settings = {"secret-key-path": key, "log-level": "debug"}
    cluster = Cluster(tmp_path / "cluster", workers=1, worker_settings=settings, master_settings=settings)
    said: list[str] = []
    try:
        for server, password in ((source, OF_SOURCE), (target, OF_TARGET)):
            server.start()
            server.execute(f"CREATE USER m@'127.0.0.1' IDENTIFIED BY '{password}'", "GRANT ALL ON *.* TO m@'127.0.0.1'")
        source.execute(
            "CREATE DATABASE sealed", "CREATE TABLE sealed.t (id INT PRIMARY KEY)", "INSERT INTO sealed.t VALUES (1)"
        )
        cluster.start()
        plain = cluster.write("mysql-01.yaml", source_yaml("mysql-01", source, "m", OF_SOURCE))
        said.append(cluster.dmctl("operate-source", "create", plain).text)
        cluster.start_task(task(target, OF_TARGET))
        cluster.wait_replicating("sealed")
        source.execute("INSERT INTO sealed.t VALUES (2)")
        until(lambda: target.query("SELECT COUNT(*) FROM sealed.t") == [(2,)], "both rows are merged")
        assert_sealed(cluster)
        # The same task with an encrypted password in its file has no differences.
        encrypted = secret.load_key(key).encrypt(OF_TARGET)
        same = cluster.write("encrypted.yaml", task(target, encrypted))
        answer = cluster.dmctl("update-task", same, "--dry-run")
        assert not [part for part in answer.json["sources"] if part["settings"]], answer.text
        again = cluster.write("plain.yaml", task(target, OF_TARGET))
        said += [answer.text, cluster.dmctl("update-task", again).text]
        wrong = cluster.write("wrong.yaml", task(target, OF_TARGET + "x").replace("sealed\ntask", "other\ntask"))
        refused = cluster.dmctl("start-task", wrong, check=False)
        assert refused.code == 1 and "Access denied" in refused.text
        asked = ("query-status sealed --more", f"check-task {again}", "operate-source show", "list-member")
        said += [refused.text, *(cluster.dmctl(*words.split(), check=False).text for words in asked)]
        assert_sealed(cluster)
        for secret_text in (OF_SOURCE, OF_TARGET):
            assert not [text for text in said if secret_text in text]
            for log in (tmp_path / "cluster").rglob("*.log"):
                assert secret_text not in log.read_text(errors="replace"), log

        # A worker without the key reports that, and resumes at its position when it has the key again.
        [worker] = cluster.workers
        worker.terminate()
        worker.write_config(secret_key_path="")
        worker.start()
        says = f"[{errors.config.SECRET_KEY_MISSING.code} secret-key-missing] the password of m@{source.host}"
        until(lambda: says in worker.log.read_text(), "the worker tells which password it cannot read")
        # It cannot prove to the master either that it belongs to the cluster.
        [part] = cluster.dmctl("query-status", "sealed", check=False).json["sources"]
        assert part["error"]["code"] == errors.tls.SERVER_UNPROVEN.code
        worker.terminate()
        worker.write_config()
        worker.start()
        source.execute("INSERT INTO sealed.t VALUES (3)")
        until(lambda: target.query("SELECT COUNT(*) FROM sealed.t") == [(3,)], "it goes on")
    finally:
        cluster.stop()
        for server in servers:
            server.stop()
