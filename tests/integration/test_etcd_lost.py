"""Tests that tasks continue after etcd has lost its data, or has only those of an older snapshot.

Epochs are made of etcd's revisions, and those at the target are higher than what etcd gives afterwards.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from shardmerge.master.state import parse
from shardmerge.proto import errors, etcd_keys, state_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd as Client
from shardmerge.worker.daemon.etcd_locks import EtcdLockClient
from shardmerge.worker.daemon.registration import Registration
from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.etcd import Etcd
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer

_WRITES = 400
"""How many writes of others raise etcd's revision before the first run: more than all that follow."""


TASK, SOURCE = "lost", "mysql-01"


def bound(client: Client, worker: str) -> Registration:
    """Return a registered worker to which the source is bound, with the task's subtask."""
    made = Registration(client, worker, "127.0.0.1:1", 60.0)
    made.register()
    record = state_pb2.BindingRecord(source_id=SOURCE, worker=worker)
    client.put(etcd_keys.bound(SOURCE), etcd_keys.encode(record))
    client.put(etcd_keys.subtask(TASK, SOURCE), etcd_keys.encode(state_pb2.SubTaskRecord()))
    return made


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    etcd = Etcd(tmp_path / "etcd").start()
    with etcd.client() as made:
        yield made
    etcd.stop()


def test_epochs_are_in_the_order_in_which_etcd_confirms_runs(client: Client) -> None:
    """Whatever epochs the targets have: etcd has lost data, or has not."""
    one = bound(client, "worker-1")
    epochs = [one.acquire(TASK, SOURCE, 0)]
    assert epochs == [client.get_prefix(etcd_keys.EPOCHS).revision], "as of every earlier version"
    epochs.append(one.acquire(TASK, SOURCE, epochs[-1]))
    assert client.get(etcd_keys.EPOCH_BASE) is None
    epochs.append(one.acquire(TASK, SOURCE, 5000))
    assert epochs[-1] > 5000
    one.rise_above(9000)
    two = bound(client, "worker-2")
    with pytest.raises(ShardmergeError) as refused:
        one.acquire(TASK, SOURCE, epochs[-1])
    assert refused.value.spec is errors.worker.NOT_BOUND
    epochs.append(two.acquire(TASK, SOURCE, 5001))
    assert epochs[-1] > 9000
    epochs.append(two.acquire(TASK, SOURCE, 0))
    assert epochs == sorted(set(epochs))
    now = parse(client.get_prefix(etcd_keys.PREFIX))
    assert epochs[-1] <= now.epoch_at(now.revision) < two.acquire(TASK, SOURCE, 0)
    for worker in (one, two):
        worker.resign()


def test_only_the_last_run_of_a_subtask_reports_its_tables(client: Client) -> None:
    worker = bound(client, "worker-1")
    locks = EtcdLockClient(client, worker.revision_of)
    for above in (0, 5000):
        earlier = worker.acquire(TASK, SOURCE, above)
        locks.publish(TASK, SOURCE, state_pb2.ShardRecord(epoch=earlier))
        epoch = worker.acquire(TASK, SOURCE, above)
        with pytest.raises(ShardmergeError) as fenced:
            locks.publish(TASK, SOURCE, state_pb2.ShardRecord(epoch=earlier))
        assert fenced.value.spec is errors.replicate.FENCED
        locks.publish(TASK, SOURCE, state_pb2.ShardRecord(epoch=epoch))
    other = bound(client, "worker-2")
    other.acquire(TASK, SOURCE, 0)
    with pytest.raises(ShardmergeError) as fenced:
        locks.publish(TASK, SOURCE, state_pb2.ShardRecord(epoch=epoch))
    assert fenced.value.spec is errors.replicate.FENCED
    for each in (worker, other):
        each.resign()


class Lost:
    """A cluster with two sources and a task, whose etcd has had many revisions."""

    def __init__(self, cluster: Cluster, sources: Mapping[str, Database], target: Database) -> None:
        self.cluster, self.sources = cluster, sources
        self.family = Family("lost", tuple(sources.items()), target)
        self.shards = self.family.create(200)
        self.write_etcd(_WRITES)
        for name, server in sources.items():
            cluster.create_source(name, server)
        cluster.start_task(self.family.task())
        cluster.wait_replicating("lost")

    def write_etcd(self, count: int) -> None:
        with self.cluster.etcd.client() as client:
            for number in range(count):
                client.put("/elsewhere", str(number).encode())

    @property
    def data(self) -> Path:
        return self.cluster.etcd.directory / "data"

    def keep_snapshot(self) -> Path:
        """Copy the data of etcd while it does not run; return the copy."""
        kept = self.cluster.etcd.directory / "kept"
        self.cluster.etcd.kill()
        shutil.copytree(self.data, kept)
        self.cluster.etcd.start()
        return kept

    def replace_data(self, kept: Path | None) -> None:
        """Restart etcd with this data; None: with none."""
        self.cluster.etcd.kill()
        shutil.rmtree(self.data)
        if kept is not None:
            shutil.copytree(kept, self.data)
        self.cluster.etcd.start()

    def export(self) -> str:
        folder = str(self.cluster.directory / "exported")
        self.cluster.dmctl(
            "--master-addr", self.cluster.socket(self.cluster.masters[0]), "config", "export", "-p", folder
        )
        return folder

    def starts(self) -> dict[str, tuple[object, ...]]:
        """Return where each source's replication began, and when its chunks were copied: another copy has others."""
        found = self.family.target.query(
            "SELECT source, start_file, start_pos FROM dm_meta.subtask WHERE task = 'lost'"
        )
        chunks = self.family.target.query(
            "SELECT source, shard, number, source_file, source_pos FROM dm_meta.snapshot_chunk WHERE task = 'lost' "
            "ORDER BY source, shard, number"
        )
        return {str(source): (rest, [row for row in chunks if row[0] == source]) for source, *rest in found}

    def epochs(self) -> dict[str, int]:
        found = self.family.target.query("SELECT source, epoch FROM dm_meta.subtask WHERE task = 'lost'")
        return {str(source): int(str(epoch)) for source, epoch in found}

    def wait_newer(self, before: Mapping[str, int]) -> None:
        """Wait until a later run than that of ``before`` owns each subtask."""

        def newer() -> bool:
            now = self.epochs()
            return all(now[source] > epoch for source, epoch in before.items())

        until(newer, f"each epoch is above {before}", 120)

    def judge(self) -> None:
        self.cluster.wait_caught_up("lost", self.sources)
        verdict = self.family.verdict()
        assert verdict.differences == 0, verdict


def lose_data(lost: Lost, kept: Path | None, writer: Writer, *, workers_run: bool) -> None:
    """Give etcd the data of ``kept``, or none, while applications write, and the workers run or are started again."""
    workers = lost.cluster.workers
    if not workers_run:
        for worker in workers:
            worker.kill()
    lost.replace_data(kept)
    writer.go_on()
    if not workers_run:
        for worker in workers:
            worker.start()
    lost.cluster.wait_for_workers(workers)


@pytest.fixture
def lost(make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]) -> Iterator[Lost]:
    sources = {f"mysql-0{number}": make_server(f"source-{number}") for number in (1, 2)}
    cluster = make_cluster(workers=2, worker_settings={"keepalive-ttl": 20})
    yield Lost(cluster, sources, make_server("target"))


@pytest.fixture(params=["workers-run", "workers-stopped"])
def workers_run(request: pytest.FixtureRequest) -> bool:
    return request.param == "workers-run"


@pytest.mark.turns
def test_all_data_are_lost(lost: Lost, *, workers_run: bool) -> None:
    """The sources and the task are imported; the task continues from its records at the target."""
    cluster = lost.cluster
    folder, starts, epochs = lost.export(), lost.starts(), lost.epochs()
    assert min(epochs.values()) > _WRITES
    with Writer(lost.shards, seed=7) as writer:
        lose_data(lost, None, writer, workers_run=workers_run)
        cluster.dmctl("config", "import", "-p", folder)
        cluster.wait_replicating("lost")
        writer.go_on()
        writer.stop()
    lost.judge()
    assert lost.starts() == starts, "nothing is copied again"
    lost.wait_newer(epochs)
    cluster.dmctl("stop-task", "lost", "--remove-meta")
    assert lost.family.target.query("SELECT 1 FROM dm_meta.lane_checkpoint") == []


@pytest.mark.turns
def test_an_older_snapshot_is_restored(lost: Lost, *, workers_run: bool) -> None:
    """The snapshot is older than the present processes of the workers, and than their last runs."""
    cluster = lost.cluster
    kept = lost.keep_snapshot()
    for worker in cluster.workers:
        worker.kill()
        worker.start()
    cluster.wait_for_workers(cluster.workers)
    cluster.wait_replicating("lost")
    cluster.dmctl("pause-task", "lost")
    cluster.dmctl("resume-task", "lost")
    cluster.wait_replicating("lost")
    starts, epochs = lost.starts(), lost.epochs()
    with Writer(lost.shards, seed=8) as writer:
        lose_data(lost, kept, writer, workers_run=workers_run)
        lost.wait_newer(epochs)
        cluster.wait_replicating("lost")
        writer.go_on()
        cluster.dmctl("pause-task", "lost")
        cluster.wait_paused("lost")
        cluster.dmctl("resume-task", "lost")
        cluster.wait_replicating("lost")
        writer.stop()
    lost.judge()
    assert lost.starts() == starts, "nothing is copied again"
    cluster.dmctl("stop-task", "lost")
    cluster.dmctl("stop-task", str(cluster.directory / "lost.task.yaml"), "--remove-meta")
    assert lost.family.target.query("SELECT 1 FROM dm_meta.lane_checkpoint") == []
