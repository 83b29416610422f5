"""`operate-source update`, `transfer-source`, `pause-relay` while tasks run and applications write; kills at the
moments of a switch to another server (I1, I9). Both flavors of source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pymysql
import pytest

from proto import errors
from tests.integration.relay_rig import Servers
from tests.support.cluster import Answer, Cluster, Json, source_yaml
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.pair import KINDS
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer

SOURCE = "mysql-01"


class Replicated:
    """A source, a replica of it, a target, and a cluster that knows the source."""

    def __init__(self, directory: Path, flavor: str) -> None:
        self.servers = Servers(directory, flavor)
        self.old, self.new = self.servers.server("old"), self.servers.server("new")
        self.target = MariaDB(directory / "target", 201).start()
        self.cluster = Cluster(directory / "cluster").start()
        self.servers.follow(self.new, self.old)
        self.cluster.create_source(SOURCE, self.old)

    def stop(self) -> None:
        self.cluster.stop()
        self.target.stop()
        self.servers.stop()

    def swap(self) -> None:
        """The other one follows from now on."""
        self.servers.follow(self.old, self.new)
        self.old, self.new = self.new, self.old

    def family(self, name: str, server: Database) -> Family:
        return Family(name, ((SOURCE, server),), self.target)

    def update(self, text: str, *options: str) -> Answer:
        return self.cluster.dmctl(
            "operate-source", "update", self.cluster.write("update.yaml", text), *options, check=False
        )

    def judge(self, name: str, server: Database) -> None:
        """With all writers stopped: the target is what ``server`` has."""
        self.cluster.wait_caught_up(name, {SOURCE: server})
        verdict = self.family(name, server).verdict()
        assert verdict.differences == 0, verdict

    def relay(self) -> Json:
        status: Json = self.cluster.dmctl("query-status", "-s", SOURCE).json["sources"][0]["sourceStatus"][
            "relayStatus"
        ]
        return status


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


def _codes(answer: Answer) -> list[int]:
    sources = cast("list[Json]", answer.json["sources"])
    return [int(cast("Json", one["error"])["code"]) if one.get("error") else 0 for one in sources]


def _dumps_of(server: Database, user: str) -> set[object]:
    """The ids of the connections by which it reads the binlog."""
    listed = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%' AND user = "
    return {row[0] for row in server.query(f"{listed}'{user}'")}


def _kill(server: Database, connection: object) -> None:
    """One that may be gone by itself."""
    with suppress(pymysql.MySQLError):
        server.execute(f"KILL {connection}")


def test_everything_that_changes_live(replicated: Replicated) -> None:
    cluster, source = replicated.cluster, replicated.old
    family = replicated.family("live", source)
    shards = family.create(500)
    privileges = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
    if source.flavor == "mariadb":
        privileges = "SELECT, REPLICATION SLAVE, BINLOG MONITOR"
    source.execute("CREATE USER dm@'%' IDENTIFIED BY 'first'", f"GRANT {privileges} ON *.* TO dm@'%'")
    assert replicated.update(source_yaml(SOURCE, source, "dm", "first")).code == 0
    cluster.start_task(family.task())
    cluster.wait_replicating("live")
    with Writer(shards, seed=51) as writer:
        writer.go_on()
        dumps = until(lambda: _dumps_of(source, "dm"), "the relay comes as the new user", 60)
        # Another password: the one before no longer lets anybody in.
        source.execute("ALTER USER dm@'%' IDENTIFIED BY 'second'")
        wrong = replicated.update(source_yaml(SOURCE, source, "dm", "third"))
        assert _codes(wrong) == [errors.master.SOURCE_CHECK_FAILED.code], wrong.text
        writer.go_on()
        right = replicated.update(source_yaml(SOURCE, source, "dm", "second"))
        assert right.code == 0, right.text
        assert "second" not in right.text
        cluster.wait_replicating("live", 120)
        # Everybody came anew, and whoever comes again comes with the new one.
        until(lambda: _dumps_of(source, "dm") - dumps, "the relay comes with the new password", 60)
        for (thread,) in source.query("SELECT id FROM information_schema.processlist WHERE user = 'dm'"):
            _kill(source, thread)
        head = replicated.relay()["relayBinlog"]
        writer.go_on()
        until(lambda: replicated.relay()["relayBinlog"] != head, "the relay log grows")
        # Another address of the same server.
        elsewhere = source_yaml(SOURCE, source, "dm", "second").replace("127.0.0.1", "localhost")
        moved = replicated.update(elsewhere)
        assert moved.code == 0, moved.text
        assert "the same server" in moved.text
        cluster.wait_replicating("live", 120)
        writer.go_on()
        # Rules for purging, without any interruption.
        epochs = [sub.raw["epoch"] for sub in cluster.subtasks("live").values()]
        purge = elsewhere + "purge: {interval: 5, remain-space: 0}\n"
        assert replicated.update(purge).code == 0
        assert [sub.raw["epoch"] for sub in cluster.subtasks("live").values()] == epochs
        assert _codes(replicated.update(purge + "case-sensitive: true\n")) == [errors.master.SOURCE_UPDATE_FIXED.code]
        # The relay log stands, and goes on.
        cluster.dmctl("pause-relay", "-s", SOURCE)
        assert replicated.relay()["paused"]
        head = replicated.relay()["relayBinlog"]
        writer.go_on()
        assert replicated.relay()["relayBinlog"] == head
        cluster.dmctl("resume-relay", "-s", SOURCE)
        until(lambda: replicated.relay()["relayBinlog"] != head, "it fetches again")
        # Another worker, while everybody writes.
        before = cluster.worker_of(SOURCE)
        other = next(one for one in cluster.workers if one is not before)
        given = cluster.dmctl("transfer-source", SOURCE, other.name)
        assert cluster.worker_of(SOURCE) is other, given.text
        cluster.wait_replicating("live", 120)
        writer.go_on()
        # Off, and on again.
        off = replicated.update(elsewhere + "enable: false\n")
        assert off.code == 0, off.text
        asked = cluster.dmctl("query-status", "live", check=False)
        assert str(errors.master.SOURCE_DISABLED.code) in asked.text
        writer.go_on()
        assert replicated.update(elsewhere).code == 0
        cluster.wait_replicating("live", 120)
        writer.go_on()
        writer.stop()
    replicated.judge("live", source)
    cluster.dmctl("stop-task", "live")
    assert replicated.update(source_yaml(SOURCE, source)).code == 0


def test_another_server_goes_on_by_gtid(replicated: Replicated) -> None:
    cluster, old, new = replicated.cluster, replicated.old, replicated.new
    family, later = replicated.family("switched", old), replicated.family("switched", new)
    shards = family.create(2000)
    cluster.hooks.hold("snapshot.before_commit")
    cluster.start_task(family.task())
    cluster.hooks.reached("snapshot.before_commit")
    replicated.servers.caught_up(new, old)
    busy = replicated.update(source_yaml(SOURCE, new))
    assert _codes(busy) == [errors.relay.SWITCH_BUSY.code], busy.text
    cluster.hooks.release("snapshot.before_commit")
    cluster.wait_replicating("switched")
    with Writer(shards, seed=52) as writer:
        writer.go_on(600)
        writer.stop()
    replicated.servers.caught_up(new, old)
    replicated.servers.promote(new)
    with Writer(later.shard_tables(), seed=53) as writer:
        writer.go_on()
        told = replicated.update(source_yaml(SOURCE, new), "--dry-run")
        assert told.code == 0 and "goes on by GTID" in told.text, told.text
        answer = replicated.update(source_yaml(SOURCE, new))
        assert answer.code == 0, answer.text
        cluster.wait_replicating("switched", 120)
        writer.go_on(600)
        writer.stop()
    replicated.judge("switched", new)
    cluster.dmctl("stop-task", "switched")
    replicated.swap()


SWITCHING = ("source.checked", "source.stored", "source.released", "relay.connected")
"""The moments of a switch: of the master, then of the worker."""


def test_kill_at_every_moment_of_a_switch(replicated: Replicated) -> None:
    """The other worker is away: one that did not read from the server before cannot find the history's places there
    (POSITION_ELSEWHERE) until the worker that did takes the source again, which is a known limit."""
    cluster, old, new = replicated.cluster, replicated.old, replicated.new
    family, later = replicated.family("killed", old), replicated.family("killed", new)
    shards = family.create(300)
    cluster.start_task(family.task())
    cluster.wait_replicating("killed")
    [spare] = [worker for worker in cluster.workers if worker is not cluster.worker_of(SOURCE)]
    assert spare.terminate() == 0
    with Writer(shards, seed=54) as writer:
        writer.go_on()
        writer.stop()
    replicated.servers.caught_up(new, old)
    replicated.servers.promote(new)
    hooks, master = cluster.hooks, cluster.masters[0]
    text = source_yaml(SOURCE, new)
    with Writer(later.shard_tables(), seed=55) as writer:
        for moment, kept in (("source.checked", True), ("source.stored", False)):
            hooks.hold(moment)
            if not kept:
                hooks.hold("source.released")
            thread = threading.Thread(target=replicated.update, args=(text,))
            thread.start()
            hooks.reached(moment)
            master.kill()
            hooks.release(moment)
            thread.join()
            master.start()
            cluster.wait_bound([SOURCE])
            says = replicated.update(text, "--dry-run") if kept else None
            assert says is None or [one["key"] for one in says.json["changes"]] == ["from.port"], says.text
        writer.go_on()
        worker = cluster.worker_of(SOURCE)
        hooks.reached("source.released")
        hooks.hold("relay.connected")
        worker.kill()
        hooks.release("source.released")
        until(lambda: not worker.session(), "what the worker has started ends by itself", 300)
        worker.start()
        cluster.wait_bound([SOURCE])
        hooks.reached("relay.connected", 300)
        worker = cluster.worker_of(SOURCE)
        worker.kill()
        hooks.release("relay.connected")
        until(lambda: not worker.session(), "what the worker has started ends by itself", 300)
        worker.start()
        cluster.wait_bound([SOURCE])
        unchanged = replicated.update(text)
        assert unchanged.code == 0 and not unchanged.json["changes"], unchanged.text
        cluster.wait_replicating("killed", 200)
        writer.go_on()
        writer.stop()
    replicated.judge("killed", new)
    cluster.dmctl("stop-task", "killed")
    spare.start()
    replicated.swap()
