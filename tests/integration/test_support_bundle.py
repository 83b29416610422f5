"""Tests `dmctl support-bundle` with a running task, a task that fails, and a dead worker."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from tests.support.bundle import Bundle
from tests.support.cluster import source_yaml
from tests.support.wait import until
from tests.support.world import Family, World

pytestmark = pytest.mark.spark

_OF_SOURCE, _OF_TARGET, _WRONG = "Geheim+of/source-4711", "Geheim+of/target-4712", "Geheim+of/wrong-4713"
_COMMENT = "Geheim+in/comment-4714"
_SECRETS = (_OF_SOURCE, _OF_TARGET, _WRONG, _COMMENT)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Provide a world whose sources and target have accounts with passwords."""
    made = World(tmp_path / "world")
    try:
        made.start_servers()
        made.cluster.start()
        for server, password in ((made.sources[0][1], _OF_SOURCE), (made.target, _OF_TARGET)):
            server.execute(
                f"CREATE OR REPLACE USER m@'127.0.0.1' IDENTIFIED BY '{password}'", "GRANT ALL ON *.* TO m@'127.0.0.1'"
            )
        (first, server), (second, other) = made.sources
        file = source_yaml(first, server, "m", _OF_SOURCE) + f"# former password: {_COMMENT}\n"
        made.cluster.dmctl("operate-source", "create", made.cluster.write("first.yaml", file))
        made.cluster.create_source(second, other)
        yield made
    finally:
        made.stop()


def _task(world: World, family: Family, name: str, password: str) -> str:
    target = world.target
    login = f"{{host: {target.host}, port: {target.port}, user: m, password: '{password}'}}"
    text = family.task(name).replace(f"target-database: {target.login}", f"target-database: {login}")
    assert password in text
    return f"{text}# {_COMMENT}\n"


def test_a_running_task_and_a_dead_worker(world: World, tmp_path: Path) -> None:
    cluster, family = world.cluster, world.family("bundled")
    family.create(50)
    cluster.start_task(_task(world, family, "bundled", _OF_TARGET))
    cluster.wait_replicating("bundled")
    cluster.wait_caught_up("bundled", dict(world.sources))
    # A command that fails leaves an error, and may leave its file's secrets.
    refused = cluster.dmctl(
        "start-task", cluster.write("wrong.yaml", _task(world, family, "wrong", _WRONG)), check=False
    )
    assert refused.code == 1
    dead = cluster.worker_of(world.sources[1][0])
    alive = cluster.worker_of(world.sources[0][0])
    dead.kill_all()

    path = tmp_path / "bundle.tar.gz"
    began = time.monotonic()
    answer = cluster.dmctl("support-bundle", "-o", str(path))
    assert time.monotonic() - began < 15
    bundle = Bundle(path)
    keys = (cluster.directory / "state" / "shardmerge" / "secret.key").read_text().split()
    assert bundle.found((*_SECRETS, *keys, "enc:v1:", "enc:v2:")) == []
    until(lambda: len(bundle.files) == answer.json["files"], "the number of files is printed", 1)

    _cluster(bundle, world)
    _index(bundle, dead.name, [one["what"] for one in answer.json["notCollected"]])
    _daemon(bundle, f"worker-{alive.name}", world)
    assert not any(name.startswith(f"daemons/worker-{dead.name}/") for name in bundle.files)
    _etcd(bundle)

    again = cluster.dmctl("support-bundle", "-o", str(path), check=False)
    assert again.code == 1 and f"[{errors.ctl.WRITE_FAILED.code} " in again.text and "not replaced" in again.text
    assert path.read_bytes() == bundle.path.read_bytes()
    _refused_row(world, family, tmp_path / "refused.tar.gz")


def _refused_row(world: World, family: Family, path: Path) -> None:
    """The error of a row has its key and a text with its values; the bundle has neither."""
    cluster, customer, number = world.cluster, "Geheim of/row-4715", "471547"
    world.target.execute(
        f"CREATE TRIGGER {family.name}.refuse BEFORE INSERT ON {family.name}.orders FOR EACH ROW "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = NEW.customer"
    )
    world.sources[0][1].execute(
        f"INSERT INTO {family.name}_01.order_01 VALUES ({number}, '{customer}', 1, 'new', NULL, 'x', NOW())"
    )
    until(lambda: customer in cluster.dmctl("query-status", "bundled", check=False).text, "the row is refused", 60)
    cluster.dmctl("support-bundle", "-o", str(path))
    bundle = Bundle(path)
    assert bundle.found((customer, number)) == []
    assert "errno 1644" in bundle.readme
    log = bundle.text(f"daemons/worker-{cluster.worker_of(world.sources[0][0]).name}/log.jsonl")
    assert "(left out)" in log, log


def _cluster(bundle: Bundle, world: World) -> None:
    assert {one["name"] for one in bundle.json("members.json")["workers"]} == {
        worker.name for worker in world.cluster.workers
    }
    source = bundle.text(f"config/sources/{world.sources[0][0]}.yaml")
    assert "password: '******'" in source and "user: m" in source and "#" not in source
    task = bundle.text("config/tasks/bundled.yaml")
    assert "password: '******'" in task and "partition id" in task
    assert "log-level" in bundle.text("config/masters/master-1.yaml")
    subtasks = bundle.json("status/task-bundled.json")["sources"]
    running = [one for part in subtasks for one in part["subTaskStatus"]]
    assert {(one["name"], one["stage"], one["unit"]) for one in running} == {("bundled", "Running", "Sync")}
    assert bundle.json("ddl-locks.json")["locks"] == []


def _index(bundle: Bundle, dead: str, missing: list[str]) -> None:
    index = bundle.readme
    for name in bundle.files:
        assert name == "README.md" or f"`{name}`" in index, name
    assert any(f"worker {dead}" in what for what in missing)
    section = index.partition("## Not collected")[2].partition("## Left out")[0]
    # Until the lease ends the worker is a member that cannot be reached; then it is none.
    codes = {errors.master.PEER_UNREACHABLE.code, errors.master.WORKER_UNKNOWN.code}
    found = re.search(rf"the diagnostics of worker {dead}: \[(\d+) ", section)
    assert found is not None and int(found[1]) in codes, section
    assert "What to do: " in section


def _daemon(bundle: Bundle, folder: str, world: World) -> None:
    about = bundle.json(f"daemons/{folder}/about.json")
    assert about["versions"]["shardmerge"] and about["versions"]["pyspark"] and "java" in about["versions"]
    assert int(about["host"]["processors"]) >= 1 and int(about["host"]["memory, bytes"]) > 0
    assert {"reconcile", "lease-guard"} <= {one["loop"] for one in about["loops"]}
    assert any(one["method"].endswith("/Diagnostics") for one in about["calls"])
    servers = {(one["side"], one["address"]): one["version"] for one in about["servers"]}
    for side, server in (("source", world.sources[0][1]), ("target", world.target)):
        assert "MariaDB" in servers[side, f"{server.host}:{server.port}"]
    stacks = bundle.text(f"daemons/{folder}/stacks.txt")
    assert "lease-guard" in stacks and "shardmerge/worker/daemon/daemon.py" in stacks
    metrics = bundle.text(f"daemons/{folder}/metrics.om")
    assert re.search(r'^dm_worker_task_state\{[^}]*task="bundled"[^}]*\} 2\.0 \d+\.\d{3}$', metrics, re.MULTILINE)
    assert metrics.endswith("\n# EOF\n")
    lines = [json.loads(line) for line in bundle.text(f"daemons/{folder}/log.jsonl").splitlines()]
    assert all(line["level"] in ("warning", "error", "critical") for line in lines)


def _etcd(bundle: Bundle) -> None:
    facts = bundle.json("etcd.json")
    folders = {one["prefix"].rpartition("/shardmerge/v1/")[2]: one for one in facts["folders"]}
    assert int(folders["source/"]["records"]) == 2 and int(folders["source/"]["valueBytes"]) > 100
    assert int(folders["subtask/"]["records"]) == 2
    [endpoint] = facts["endpoints"]
    assert endpoint["version"].startswith("3.") and int(endpoint["dbBytes"]) > 0 and endpoint["leader"]
    assert len(facts["members"]) == 1 and facts["members"][0]["alarms"] == []
