"""Tests dm-worker as a process: a failed start that cleans up, a clean end, an immediate end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmerge.proto import errors
from tests.support.cluster import Cluster
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer

pytestmark = [pytest.mark.spark, pytest.mark.turns]


def _left(folder: Path) -> list[str]:
    """Return what Spark has left in the folder of temporary files, at any depth."""
    return sorted(path.name for kind in ("blockmgr-*", "artifacts-*", "liblz4-*") for path in folder.rglob(kind))


def test_life_of_a_worker(
    make_server: Callable[..., MariaDB],
    make_cluster: Callable[..., Cluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    source, target = make_server("source"), make_server("target")
    # Long enough that only the second signal can end a worker that drains and is held.
    cluster = make_cluster(workers=1, worker_settings={"drain-seconds": 600})
    [worker] = cluster.workers
    cluster.create_source("mysql-01", source)
    family = Family("life", (("mysql-01", source),), target)
    shards = family.create(100)
    with Writer(shards, seed=51) as writer:
        cluster.start_task(family.task())
        cluster.wait_replicating("life")

        # SIGTERM: lanes drained, the lease released, no files and processes left.
        assert worker.terminate() == 0
        # Spark's Python processes notice the JVM's end by themselves.
        until(lambda: not worker.session(), "nothing that it has started is left")
        assert _left(temporary) == []
        [member] = cluster.dmctl("list-member", "--worker").json["workers"]
        assert member["stage"] == "offline"
        worker.start()
        cluster.wait_replicating("life")

        # While it drains, a second signal ends it at once; the processes that it has started end too.
        cluster.hooks.hold("lane0.before_commit")
        cluster.hooks.reached("lane0.before_commit")
        size = worker.log.stat().st_size
        worker.signal(signal.SIGTERM)
        until(lambda: b"draining" in worker.log.read_bytes()[size:], "it drains")
        worker.signal(signal.SIGTERM)
        until(lambda: not worker.alive, "the second signal ends it")
        until(lambda: not worker.session(), "its JVM and Spark tasks end", 300)
        cluster.hooks.release("lane0.before_commit")
        worker.start()
        cluster.wait_replicating("life")

        # A killed JVM leaves its files; the next start of the worker removes them.
        worker.kill_all()
        killed = set(_left(temporary))
        assert killed
        worker.start()
        assert not killed & set(_left(temporary)), "what the one before left is gone"
        cluster.wait_replicating("life")
        writer.stop()
    cluster.wait_caught_up("life", {"mysql-01": source})
    assert family.verdict().differences == 0, family.verdict()

    # A failed start reports its reason in two lines and leaves no JVM.
    worker.terminate()
    host, port = worker.address.split(":")
    with socket.create_server((host, int(port))):
        size = worker.log.stat().st_size
        worker.start(wait=False)
        until(lambda: not worker.alive, "it gives up", 300)
    said = worker.log.read_bytes()[size:].decode()
    assert f"[{errors.master.CANNOT_LISTEN.code} " in said
    assert "what to do:" in said
    assert "Traceback" not in said
    until(lambda: not worker.session(), "nothing that it has started is left")
