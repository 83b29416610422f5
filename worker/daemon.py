"""The worker process: obeys etcd's records, answers the master, serves its Spark tasks.

Level-triggered: whatever changed, it reads all records at one revision and makes its source and
subtasks what they say. A lost lease stops the lanes until etcd answers again.
"""

from __future__ import annotations

import threading
from pathlib import Path

from proto import compare_pb2_grpc, errors, hooks, keys, relay_pb2_grpc, rpc, state_pb2, worker_pb2, worker_pb2_grpc
from proto.config.daemon import shown
from proto.config.daemon_model import WorkerFile
from proto.config.daemon_tls import etcd_tls_of
from proto.errors import ShardmergeError
from proto.etcd import Etcd, Snapshot
from proto.log import get_logger
from proto.rpc_limits import WORKER
from proto.tls.diagnose import tell
from proto.tls.process import of_process
from worker.check import SparkRoom, WorkerView
from worker.compare.service import CompareService
from worker.lane_service import LaneService
from worker.leased_server_id import LeasedServerId
from worker.left_logs import LeftLogs
from worker.registration import Registration
from worker.relay.relay import Relay
from worker.relay.server_id import derived
from worker.service import WorkerService
from worker.shard_desk import EtcdShardDesk
from worker.source_runner import SourceRunner
from worker.spark import SparkRunner
from worker.subtask import Decision, SubTask

log = get_logger()

_LEASE_POLL_SECONDS = 0.2
_ETCD_PAUSE_SECONDS = 1.0
_SERVICES = ("shardmerge.v1.Worker", "shardmerge.v1.Relay", "shardmerge.v1.WorkerCompare", "shardmerge.v1.CompareDesk")


class Daemon:
    """Started once by worker/main.py: :meth:`start`, :meth:`run` until told to stop, :meth:`close`."""

    def __init__(self, config: WorkerFile, spark: SparkRunner, stop: threading.Event) -> None:
        self._config = config
        self._spark = spark
        self._stop = stop
        self._lane_service = LaneService(self._relay)
        self._server = rpc.make_server(_SERVICES, "dm-worker", WORKER, reflect=config.grpc_reflection)
        self._etcd = Etcd(config.etcd, tls=etcd_tls_of(config))
        self._registration = Registration(
            self._etcd, config.name, config.advertise_addr, float(config.keepalive_ttl), shown(config)
        )
        self._shards = EtcdShardDesk(self._etcd)
        self._left = LeftLogs(Path(config.relay_dir), config.name)
        self._runner: SourceRunner | None = None
        self._seen = 0  # revision of the records last read and handed on
        self._observed = 0  # revision whose decisions are all acted on

    def start(self) -> None:
        """Listen and register. Raises CANNOT_LISTEN; what was begun is undone by :meth:`close`."""
        worker_pb2_grpc.add_WorkerServicer_to_server(WorkerService(self), self._server)
        relay_pb2_grpc.add_RelayServicer_to_server(self._lane_service, self._server)
        comparisons = CompareService(self._subtask)
        compare_pb2_grpc.add_WorkerCompareServicer_to_server(comparisons, self._server)
        compare_pb2_grpc.add_CompareDeskServicer_to_server(comparisons, self._server)
        rpc.listen(self._server, self._config.worker_addr)
        self._server.start()
        threading.Thread(target=self._guard_lease, name="lease-guard", daemon=True).start()
        threading.Thread(target=self._left.follow, args=(self._stop,), name="left-logs", daemon=True).start()
        log.info("listening", address=self._config.worker_addr, spark_ui=self._spark.ui_url)
        tls = of_process()
        if tls is not None:
            tell(self._config.advertise_addr, tls.files)  # what keeps others from it is told before they come

    def run(self) -> None:
        """Reconcile until stopped, superseded, or Spark is lost (the caller asks :attr:`spark_lost`)."""
        for _ in self._etcd.watch(keys.PREFIX, 0, self._stop, resync_seconds=2.0):
            self._spark.check()
            if self._spark.lost:
                log.error("the Spark driver is gone")
                return
            try:
                if not self._registration.alive:
                    self._rejoin()
                elif self._registration.superseded():
                    log.error("another process has registered under this name", worker=self._config.name)
                    return
                self._reconcile(self._etcd.get_prefix(keys.PREFIX))
            except ShardmergeError as error:
                log.warning("cannot follow the records", error=str(error))
                self._stop.wait(_ETCD_PAUSE_SECONDS)

    @property
    def spark_lost(self) -> bool:
        return self._spark.lost

    def close(self) -> None:
        """Drain within the budget: units stop, the lease is given back, the server ends."""
        budget = float(self._config.drain_seconds)
        log.info("draining", seconds=budget)
        if self._runner is not None and not self._runner.stop(budget):
            log.warning("subtasks did not end within the drain budget", seconds=budget)
        self._registration.resign()
        self._server.stop(grace=1.0).wait()
        self._etcd.close()

    # --- for the services

    def report(self, task: str) -> worker_pb2.WorkerStatusResponse:
        runner, seen = self._runner, self._seen
        if runner is None or runner.settled():
            self._observed = max(self._observed, seen)
        answer = worker_pb2.WorkerStatusResponse(
            worker=self._config.name,
            incarnation=self._registration.incarnation,
            observed_revision=self._observed,
            spark_ui=self._spark.ui_url,
        )
        if runner is not None:
            answer.source = runner.config.source_id
            relay, subtasks = runner.status(task)
            answer.relay.CopyFrom(relay)
            answer.subtasks.extend(subtasks)
        return answer

    def view(self, task: str, source: str) -> WorkerView:
        self._spark.check()
        room = SparkRoom(self._spark.total_slots, self._spark.free_slots, self._spark.lost)
        runs = self._subtask(task, source) is not None
        return WorkerView(self._config.name, room, Path(self._config.relay_dir), runs)

    def purge_relay(self, request: worker_pb2.WorkerPurgeRelayRequest) -> worker_pb2.WorkerPurgeRelayResponse:
        return self._bound(request.source).purge_before(request.filename, request.sub_dir)

    def operate_schema(self, request: worker_pb2.WorkerSchemaRequest) -> worker_pb2.WorkerSchemaResponse:
        return self._bound(request.source).operate_schema(request)

    def check_switch(self, request: worker_pb2.CheckSwitchRequest) -> worker_pb2.CheckSwitchResponse:
        return self._bound(request.source.source_id).check_switch(request)

    def relay_needs(self, source: str) -> worker_pb2.RelayNeedsResponse:
        return self._bound(source).relay_needs()

    def _bound(self, source: str) -> SourceRunner:
        runner = self._runner
        if runner is None or runner.config.source_id != source:
            raise errors.worker.NOT_BOUND(source=source, worker=self._config.name)
        return runner

    def _subtask(self, task: str, source: str) -> SubTask | None:
        runner = self._runner
        return runner.subtask(task) if runner is not None and runner.config.source_id == source else None

    def _relay(self) -> Relay | None:
        runner = self._runner
        return None if runner is None else runner.relay

    # --- lease

    def _rejoin(self) -> None:
        self._registration.register()
        if self._runner is not None:
            self._runner.wake()

    def _guard_lease(self) -> None:
        # Apart from the reconcile thread, which may be waiting for etcd just then.
        was_alive = False
        while not self._stop.wait(_LEASE_POLL_SECONDS):
            alive = self._registration.alive
            runner = self._runner
            if was_alive and not alive and runner is not None:
                log.error("lease lost", error=str(errors.worker.LEASE_LOST(worker=self._config.name)))
                runner.interrupt()
            was_alive = alive

    # --- records

    def _reconcile(self, snapshot: Snapshot) -> None:
        source = self._bound_source(snapshot)
        runner = self._runner
        if runner is not None and (
            source is None or (source.config != runner.config and not runner.adopt(source.config))
        ):
            log.info("source released", source=runner.config.source_id)
            self._runner = None
            runner.stop(float(self._config.drain_seconds))
            runner = None
            hooks.reach("source.released")
        if source is not None and runner is None:
            log.info("source bound", source=source.config.source_id)
            config, directory = source.config, Path(self._config.relay_dir) / source.config.source_id
            runner = SourceRunner(
                config,
                directory,
                LeasedServerId(self._etcd, self._registration, config.source_id, config.server_id, derived(directory)),
                self._spark,
                self._lane_service,
                self._config.advertise_addr,
                self._registration,
                lambda: self._registration.alive,
                self._shards,
                relay_paused=source.relay_paused,
            )
            self._runner = runner
        elif source is not None and runner is not None:
            runner.relay.pause(paused=source.relay_paused)
        self._left.see(snapshot)
        self._shards.see(snapshot)
        if runner is not None:
            runner.reconcile(_decisions(snapshot, runner.config.source_id))
        self._seen = snapshot.revision

    def _bound_source(self, snapshot: Snapshot) -> state_pb2.SourceRecord | None:
        for record in snapshot.records:
            if record.key.startswith(keys.BOUNDS):
                bound = keys.decode(state_pb2.BindingRecord, record.value, record.key)
                if bound.worker == self._config.name:
                    return _source(snapshot, bound.source_id)
        return None


def _source(snapshot: Snapshot, source_id: str) -> state_pb2.SourceRecord | None:
    wanted = keys.source(source_id)
    for record in snapshot.records:
        if record.key == wanted:
            return keys.decode(state_pb2.SourceRecord, record.value, record.key)
    return None


def _decisions(snapshot: Snapshot, source_id: str) -> dict[str, Decision]:
    """The source's subtasks by task name."""
    found: dict[str, Decision] = {}
    for record in snapshot.records:
        if record.key.startswith(keys.SUBTASKS) and keys.names(record.key, keys.SUBTASKS)[1] == source_id:
            subtask = keys.decode(state_pb2.SubTaskRecord, record.value, record.key)
            found[subtask.config.task] = Decision(
                subtask.config,
                subtask.expected,
                subtask.meta_token,
                subtask.update_token,
                record.mod_revision,
                tuple(subtask.binlog_ops),
            )
    return found
