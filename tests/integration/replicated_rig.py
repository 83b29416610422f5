"""Provides a source with a replica, a target and a cluster of two workers, for changes at a source while tasks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from tests.integration.relay_rig import Servers
from tests.support.cluster import Answer, Cluster, Json
from tests.support.daemon import Daemon
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.pair import KINDS
from tests.support.wait import until
from tests.support.world import Family

SOURCE = "mysql-01"


class Replicated:
    """A source, a replica of it, a target, and a cluster to which the source was added."""

    def __init__(self, directory: Path, flavor: str, environment: Mapping[str, str] | None = None) -> None:
        self.servers = Servers(directory, flavor)
        self.old, self.new = self.servers.server("old"), self.servers.server("new")
        self.target = MariaDB(directory / "target", 201).start()
        self.cluster = Cluster(directory / "cluster", environment=environment).start()
        self.servers.follow(self.new, self.old)
        self.cluster.create_source(SOURCE, self.old)

    def stop(self) -> None:
        self.cluster.stop()
        self.target.stop()
        self.servers.stop()

    def swap(self) -> None:
        """Exchange the roles: the other server is the replica from now on."""
        self.servers.follow(self.old, self.new)
        self.old, self.new = self.new, self.old

    def family(self, name: str, server: Database) -> Family:
        return Family(name, ((SOURCE, server),), self.target)

    def update(self, text: str, *options: str) -> Answer:
        return self.cluster.dmctl(
            "operate-source", "update", self.cluster.write("update.yaml", text), *options, check=False
        )

    def judge(self, name: str, server: Database) -> None:
        """Check that the target has the rows of ``server``; all writers must have stopped."""
        self.cluster.wait_caught_up(name, {SOURCE: server})
        verdict = self.family(name, server).verdict()
        assert verdict.differences == 0, verdict

    def relay(self) -> Json:
        return until(lambda: self.cluster.relay_status(SOURCE), "the worker tells of its relay")


@pytest.fixture(scope="module", params=list(KINDS))
def module_replicated(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Replicated]:
    made = Replicated(tmp_path_factory.mktemp("replicated"), str(request.param))
    yield made
    made.stop()


@pytest.fixture
def replicated(module_replicated: Replicated, watch_logs: Callable[[Path], None]) -> Replicated:
    watch_logs(module_replicated.cluster.directory)
    module_replicated.cluster.hooks.release_all()
    return module_replicated


def codes(answer: Answer) -> list[int]:
    sources = cast("list[Json]", answer.json["sources"])
    return [int(cast("Json", one["error"])["code"]) if one.get("error") else 0 for one in sources]


def given_over(replicated: Replicated, moment: str = "") -> Daemon:
    """Kill the worker that has the source and is held at ``moment``, and restart it after the spare worker has taken
    over; return the killed worker."""
    cluster = replicated.cluster
    worker = cluster.worker_of(SOURCE)
    worker.kill()
    if moment:
        cluster.hooks.release(moment)
    until(lambda: not worker.session(), "what the worker has started ends by itself", 300)
    until(lambda: cluster.worker_of(SOURCE) is not worker, "the spare worker has the source", 300)
    worker.start()
    cluster.wait_for_workers([worker])
    return worker
