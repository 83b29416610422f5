"""Provides a real etcd, a real dm-master, fake workers, and shard tables that exist only in etcd."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from shardmerge.proto import errors, etcd_keys
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state
from shardmerge.proto.etcd import Etcd as Client
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc.client import channel, coded_from_rpc
from tests.integration.fake_worker import FakeWorker
from tests.support import identity
from tests.support.daemon import Daemon
from tests.support.etcd import Etcd
from tests.support.wait import until

LOCK_ID = "t-`shop`.`orders`"
_SOURCE = 'source-id: {0}\nfrom: {{host: 127.0.0.1, port: 3306, user: dm, password: "p"}}\n'
_TASK = """
name: {name}
task-mode: all
shard-mode: pessimistic
target-database: {{host: 127.0.0.1, port: 4000, user: dm, password: "p"}}
mysql-instances: [{instances}]
"""


@dataclass
class Shards:
    """The records that one source's worker writes of its shard tables of `shop`.`orders`; the first structure is
    ``S0``."""

    client: Client
    task: str
    source: str
    tables: dict[str, state.ShardTable] = field(default_factory=dict[str, state.ShardTable])
    executed: str = ""

    def table(self, name: str, structure: str = "S0") -> Shards:
        self.tables[name] = state.ShardTable(schema="d", table=name, structure=structure)
        return self

    def park(self, name: str, form: str, after: str) -> Shards:
        """Park a table at a statement."""
        self.tables[name].parked.CopyFrom(
            state.ParkedAt(
                statement=f"ALTER TABLE `shop`.`orders` {form}",
                form=form,
                after=after,
                position=f"(bin.{self.source}, 4)",
                since=time.time(),
            )
        )
        return self

    def go_on(self, *names: str) -> Shards:
        """Let the tables continue after their statements."""
        for name in names:
            self.tables[name].structure = self.tables[name].parked.after
            self.tables[name].ClearField("parked")
        return self

    def tell(self) -> Shards:
        target = state.ShardTarget(
            schema="shop", table="orders", tables=list(self.tables.values()), executed=self.executed
        )
        self.client.put(
            etcd_keys.shard(self.task, self.source), etcd_keys.encode(state.ShardRecord(epoch=1, targets=[target]))
        )
        return self


class Rig:
    """etcd, a master and fake workers. ``start`` starts the pessimistic task t on the sources."""

    def __init__(self, directory: Path) -> None:
        self.etcd = Etcd(directory / "etcd").start()
        self.client = self.etcd.client(timeout=60.0)
        # No process may lose a lease here, even if it is not scheduled for long.
        settings = {"etcd": [self.etcd.endpoint], "worker-ttl": 300, "rpc-timeout": 300, "lock-alert-seconds": 1}
        self.master = Daemon("master", "m1", directory, settings, {})
        self.workers: list[FakeWorker] = []
        identity.know(self.master.key)  # a channel that is made before that never has an identity
        self.channel = channel(self.master.address)
        self.ask = MasterStub(self.channel)

    def start(self, *sources: str) -> list[Shards]:
        """Return the shards of each source, which are not published yet."""
        self.master.start()
        self.workers = [FakeWorker(f"w-{source}", self.etcd.endpoint, ttl=300.0).start() for source in sources]
        files = [pb.ConfigFile(name=f"{one}.yaml", content=_SOURCE.format(one)) for one in sources]
        request = pb.OperateSourceRequest(op=pb.OperateSourceRequest.OP_CREATE, files=files)
        created = until(lambda: self._created(request), "the sources are there")
        assert created.result, created
        return self.start_task("t", *sources)

    def _created(self, request: pb.OperateSourceRequest) -> pb.OperateSourceResponse | None:
        """Return the answer; None while there is no leader: the record of a leader exists a moment before the leader
        acts."""
        members = self.ask.ListMember(pb.ListMemberRequest(leader=True, worker=True), wait_for_ready=True)
        if not members.leader.name or len(members.workers) != len(self.workers):
            return None
        try:
            return self.ask.OperateSource(request)
        except grpc.RpcError as error:
            if coded_from_rpc(error, "master").spec is not errors.master.NO_LEADER:
                raise
            return None

    def start_task(self, name: str, *sources: str) -> list[Shards]:
        instances = ", ".join(f"{{source-id: {source}}}" for source in sources)
        file = pb.ConfigFile(name=f"{name}.yaml", content=_TASK.format(name=name, instances=instances))
        started = self.ask.StartTask(pb.StartTaskRequest(file=file))
        assert started.result, started
        return [Shards(self.client, name, source) for source in sources]

    def stop_task(self, *sources: str) -> None:
        request = pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_STOP, name="t", sources=sources)
        stopped = self.ask.OperateTask(request)
        assert stopped.result, stopped

    def lock(self) -> state.LockRecord | None:
        key = etcd_keys.lock("t", "shop", "orders")
        record = self.client.get(key)
        return etcd_keys.decode(state.LockRecord, record.value, key) if record else None

    def lock_is(self, stage: state.LockRecord.Stage, form: str = "ADD c", owner: str = "") -> state.LockRecord:
        """Return the lock, once it is in ``stage`` with that statement and owner ("": any)."""

        def seen() -> state.LockRecord | None:
            lock = self.lock()
            there = lock is not None and lock.stage == stage and lock.form == form and owner in ("", lock.owner)
            return lock if there else None

        return until(seen, f"lock of {form} in stage {stage} with owner {owner or 'any'}")

    def no_lock(self) -> None:
        until(lambda: self.lock() is None, "no lock")

    def listed(self) -> pb.DDLLock:
        """Return the only lock of the task t."""
        [lock] = self.ask.ShowDDLLocks(pb.ShowDDLLocksRequest(task="t"), wait_for_ready=True).locks
        return lock

    def log(self) -> str:
        return self.master.log.read_text(encoding="utf-8")

    def close(self) -> None:
        self.channel.close()
        self.master.stop()
        for worker in self.workers:
            worker.stop()
        self.client.close()
        self.etcd.stop()
