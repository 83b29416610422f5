"""Tests in all programs to which servers they may connect, and what an unexpected server receives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec
from tests.support.cluster import Answer, Cluster, source_yaml
from tests.support.mariadb import MariaDB
from tests.support.rogue import Peer, Rogue
from tests.support.wait import until

pytestmark = pytest.mark.turns

SECRET = "a Secret 7!"
ANOTHER = "another Secret 8!"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    made = MariaDB(tmp_path_factory.mktemp("server") / "both", 101)
    try:
        made.start()
        made.execute(
            f"CREATE USER m@'127.0.0.1' IDENTIFIED BY '{SECRET}'",
            "GRANT ALL ON *.* TO m@'127.0.0.1'",
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1)",
        )
        made.user, made.password = "m", SECRET
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def cluster(server: MariaDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Provide a master that allows more than the worker: the worker refuses what the master cannot see."""
    made = Cluster(
        tmp_path_factory.mktemp("cluster"),
        workers=1,
        master_settings={"allowed-networks": ["127.0.0.0/8"]},
        worker_settings={"allowed-networks": ["127.0.0.1/32"]},
        environment={"DM_OF_SOURCE": ANOTHER, "OF_THE_MASTER": ANOTHER},
    )
    with made:
        made.create_source("s1", server)
        yield made


def _task(server: MariaDB, target: str, name: str = "merge") -> str:
    return (
        f"name: {name}\ntask-mode: all\ntarget-database: {target}\n"
        "mysql-instances:\n  - source-id: s1\n    block-allow-list: one\n    route-rules: [all]\n"
        "block-allow-list:\n  one: {do-dbs: [shop]}\n"
        "routes:\n  all: {schema-pattern: shop, target-schema: merged}\n"
    )


def _refused(answer: Answer, spec: ErrorSpec) -> str:
    assert answer.code == 1, answer.text
    assert f"{spec.code}" in answer.text and spec.name in answer.text, answer.text
    assert SECRET not in answer.text and ANOTHER not in answer.text
    return answer.text


def _clear_text(peer: Peer) -> None:
    peer.greet()
    peer.read()
    peer.switch("mysql_clear_password")
    peer.read()


def _at(rogue: Rogue, text: str) -> str:
    """Return ``text`` with the rogue server's address."""
    lines = [line for line in text.splitlines() if not line.strip().startswith(("host:", "port:"))]
    at = lines.index("from:") + 1
    return "\n".join((*lines[:at], f"  host: {rogue.host}", f"  port: {rogue.port}", *lines[at:])) + "\n"


def test_a_task_runs_where_everything_is_allowed(cluster: Cluster, server: MariaDB) -> None:
    cluster.start_task(_task(server, server.login))
    cluster.wait_replicating("merge")
    server.execute("INSERT INTO shop.t VALUES (2)")
    until(lambda: server.query("SELECT COUNT(*) FROM merged.t") == [(2,)], "both rows are merged")
    cluster.dmctl("stop-task", "merge")


@pytest.mark.parametrize("host", ["10.1.2.3", "192.0.2.1", "::1"])
def test_the_master_refuses_a_literal_address(cluster: Cluster, server: MariaDB, host: str) -> None:
    text = source_yaml("s2", server).replace("127.0.0.1", f'"{host}"')
    said = _refused(
        cluster.dmctl("operate-source", "create", cluster.write("far.yaml", text), check=False),
        errors.config.HOST_NOT_ALLOWED,
    )
    assert "127.0.0.0/8" in said
    update = cluster.write("moved.yaml", text.replace("s2", "s1"))
    for options in ((), ("--dry-run",)):
        answer = cluster.dmctl("operate-source", "update", update, *options, check=False)
        _refused(answer, errors.config.HOST_NOT_ALLOWED)
    file = cluster.write("far.task.yaml", _task(server, server.login.replace("127.0.0.1", f'"{host}"')))
    for command in ("check-task", "start-task"):
        _refused(cluster.dmctl(command, file, check=False), errors.config.HOST_NOT_ALLOWED)


def test_the_worker_refuses_before_it_connects(cluster: Cluster, server: MariaDB) -> None:
    with Rogue(_clear_text, host="127.0.0.2") as rogue:
        file = cluster.write("near.yaml", _at(rogue, source_yaml("s2", server)))
        said = _refused(cluster.dmctl("operate-source", "create", file, check=False), errors.worker.ADDRESS_NOT_ALLOWED)
        assert f"127.0.0.2:{rogue.port}" in said and "127.0.0.1/32" in said
        target = f"{{host: 127.0.0.2, port: {rogue.port}, user: m, password: '{SECRET}'}}"
        task = cluster.write("near.task.yaml", _task(server, target))
        for command in ("check-task", "start-task"):
            _refused(cluster.dmctl(command, task, check=False), errors.worker.ADDRESS_NOT_ALLOWED)
        assert rogue.connections == 0


def test_a_password_is_not_sent_to_a_process_in_a_servers_place(cluster: Cluster, server: MariaDB) -> None:
    with Rogue(_clear_text) as rogue:
        text = _at(rogue, source_yaml("s2", server, "m", "${DM_OF_SOURCE}"))
        created = cluster.dmctl("operate-source", "create", cluster.write("r.yaml", text), check=False)
        assert "allow-public-key-retrieval" in _refused(created, errors.worker.LOGIN_REFUSED)
        moved = _at(rogue, source_yaml("s1", server))
        file = cluster.write("moved.yaml", moved)
        update = cluster.dmctl("operate-source", "update", file, "--dry-run", check=False)
        _refused(update, errors.worker.LOGIN_REFUSED)
        target = f"{{host: {rogue.host}, port: {rogue.port}, user: m, password: '{SECRET}'}}"
        task = cluster.write("r.task.yaml", _task(server, target))
        for command in ("check-task", "start-task"):  # no task exists that could be resumed
            text = _refused(cluster.dmctl(command, task, check=False), errors.worker.LOGIN_REFUSED)
            assert "`dmctl start-task <file>`" in text and "allow-public-key-retrieval" in text
            assert "resume-task" not in text and "update-task" not in text
        cluster.start_task(_task(server, server.login))
        text = _refused(cluster.dmctl("check-task", task, check=False), errors.worker.LOGIN_REFUSED)
        assert "resume-task" in text
        cluster.dmctl("stop-task", "merge")
        assert rogue.connections >= 3
        # A different address, and a password that the sender of the file need not know.
        before = rogue.connections
        for password in ("${DM_OF_SOURCE}", ""):
            file = cluster.write("moved.yaml", _at(rogue, source_yaml("s1", server, "m", password)))
            for options in ((), ("--dry-run",)):
                update = cluster.dmctl("operate-source", "update", file, *options, check=False)
                _refused(update, errors.master.SOURCE_PASSWORD_NEEDED)
        # An environment variable of the master itself.
        file = cluster.write("r.yaml", _at(rogue, source_yaml("s2", server, "m", "${OF_THE_MASTER}")))
        said = _refused(
            cluster.dmctl("operate-source", "create", file, check=False), errors.config.VARIABLE_NOT_ALLOWED
        )
        assert "env-prefixes" in said
        assert rogue.connections == before
        for secret in (SECRET, ANOTHER):
            assert secret.encode() not in rogue.said
    for log in Path(cluster.directory).rglob("*.log"):
        assert SECRET not in log.read_text(errors="replace") and ANOTHER not in log.read_text(errors="replace")
