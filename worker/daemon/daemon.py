"""The worker process: follows etcd's records, answers the master, serves its Spark tasks.

Level-triggered: whatever changed, it reads all records at one revision and brings its source and
subtasks to the state that they describe. A lost lease stops the lanes until etcd answers again.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from shardmerge.proto import (
    compare_pb2_grpc,
    diagnostics_pb2,
    errors,
    etcd_keys,
    failpoints,
    relay_pb2_grpc,
    secret,
    state_pb2,
    worker_pb2,
)
from shardmerge.proto.config.address import from_this_machine
from shardmerge.proto.config.daemon.daemon_file import shown
from shardmerge.proto.config.daemon.model import WorkerFile
from shardmerge.proto.config.daemon.tls import etcd_tls_of
from shardmerge.proto.diagnostics.self_report import SelfReport
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd, RecordSnapshot
from shardmerge.proto.etcd.access import AccessCheck
from shardmerge.proto.http.loops import LoopAges
from shardmerge.proto.http.server import HttpEndpoint, started_endpoint
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc import caller_proof
from shardmerge.proto.rpc.admission import RunningCalls
from shardmerge.proto.rpc.caller_proof import CallerCheck
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.rpc.limits import WORKER
from shardmerge.proto.rpc.server import Serving, add_service, listen, make_server
from shardmerge.proto.task_history.recorder import Recorder
from shardmerge.proto.tls.diagnose import log_diagnosis
from shardmerge.proto.tls.process import of_process
from shardmerge.proto.tracing.operation import Operation
from shardmerge.proto.warnings.certificates import CertificateFile, files_of_daemon
from shardmerge.worker.core import seen_servers
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.core.task_runner import JvmHeap, NoTasks, TaskRunner
from shardmerge.worker.daemon.compare_service import WorkerCompareService
from shardmerge.worker.daemon.diagnosis.diagnose import diagnose
from shardmerge.worker.daemon.diagnosis.target_look import TargetLooker
from shardmerge.worker.daemon.etcd_locks import EtcdLockClient
from shardmerge.worker.daemon.forecast.figures import NO_FORECAST
from shardmerge.worker.daemon.forecast.warnings import warnings_of
from shardmerge.worker.daemon.forecast.worker_watch import WorkerWatch, files_of_source
from shardmerge.worker.daemon.orphaned_logs import OrphanedLogs
from shardmerge.worker.daemon.probes import WorkerProbes
from shardmerge.worker.daemon.registration import Registration
from shardmerge.worker.daemon.source.server_id_lease import ServerIdLease
from shardmerge.worker.daemon.source.source_runner import OfWorker, SourceRunner
from shardmerge.worker.daemon.subtask.subtask import Decision, SubTask
from shardmerge.worker.daemon.task_service import TaskService
from shardmerge.worker.daemon.worker_service import handlers
from shardmerge.worker.relay.fetch.server_id import derived
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.unit.contract import Epochs
from shardmerge.worker.verify.precheck import SparkSlots, WorkerView

log = get_logger()

_LEASE_POLL_SECONDS = 0.2
_ETCD_PAUSE_SECONDS = 1.0
_HISTORY_SECONDS = 2.0
_LOST_SECONDS = 2.0  # of a drain after Spark was lost: no lane is left that could finish its work
_RECONCILE, _LEASE_GUARD = "reconcile", "lease-guard"
_SERVICES = ("shardmerge.v1.Worker", "shardmerge.v1.Relay", "shardmerge.v1.WorkerCompare", "shardmerge.v1.CompareDesk")


class Daemon:
    """The worker process, started once by worker/daemon/main.py: :meth:`start`, :meth:`run` with its Spark until the
    stop, then :meth:`close`."""

    def __init__(self, config: WorkerFile, stop: threading.Event) -> None:
        self._config = config
        self._spark: TaskRunner = NoTasks()
        self._stop = stop
        self._access = AccessCheck(config.etcd, etcd_tls_of(config), insecure=config.insecure)
        self._serving = Serving()
        calls = RunningCalls()
        caller_proof.use(secret.call_keys)
        self._server = make_server(
            _SERVICES,
            "dm-worker",
            WORKER,
            reflect=config.grpc_reflection,
            serving=self._serving,
            calls=calls,
            callers=CallerCheck(secret.call_keys, "dm-worker"),
        )
        self._etcd = Etcd(config.etcd, tls=etcd_tls_of(config))
        self._registration = Registration(
            self._etcd, config.name, config.advertise_addr, float(config.keepalive_ttl), shown(config)
        )
        self._history = Recorder(self._etcd, f"worker {config.name}", self._registration.incarnation)
        self._task_service = TaskService(self._relay, self._history)
        self._shards = EtcdLockClient(self._etcd, self._registration.revision_of)
        self._orphaned_logs = OrphanedLogs(Path(config.relay_dir), config.name)
        self._comparisons = WorkerCompareService(self._subtask)
        self._looker = TargetLooker()
        self._loops = LoopAges()
        self._watch = WorkerWatch(self._heap, self._certificates)
        self._probes = WorkerProbes(
            config, self._registration, lambda: self._spark, self._loops, stop, self._watch.current
        )
        probes = self._probes.probes(lambda: self._runner, self._comparisons.figures)
        self._self_report = SelfReport(config.name, probes, calls, _servers, self._programs)
        self._http: HttpEndpoint | None = None
        self._runner: SourceRunner | None = None
        self._refused: tuple[str, ShardmergeError] | None = None  # a source that is bound and cannot be begun, and why
        self._seen = 0  # revision of the records that were last read and passed on
        self._observed = 0  # revision whose decisions have all been carried out

    def start(self) -> None:
        """Listen, and announce in etcd that Spark starts. Raises OPEN_ETCD and CANNOT_LISTEN; :meth:`close` undoes what
        was begun."""
        self._access.judge()
        self._access.follow(self._stop)
        add_service(self._server, worker_pb2.DESCRIPTOR.services_by_name["Worker"], handlers(self))
        relay_pb2_grpc.add_RelayServicer_to_server(self._task_service, self._server)
        compare_pb2_grpc.add_WorkerCompareServicer_to_server(self._comparisons, self._server)
        compare_pb2_grpc.add_CompareDeskServicer_to_server(self._comparisons, self._server)
        # Probes and metrics answer as soon as the gRPC port does.
        self._http = started_endpoint(
            self._config.http_address,
            self._probes.probes(lambda: self._runner, self._comparisons.figures),
            is_default=self._config.http_is_default,
            tokens=None if self._config.insecure else secret.metrics_tokens,
        )
        listen(self._server, self._config.worker_addr)
        self._server.start()
        self._self_report.start(self._stop)
        self._history.start()
        self._watch.start()
        threading.Thread(target=self._guard_lease, name="lease-guard", daemon=True).start()
        threading.Thread(target=self._orphaned_logs.follow, args=(self._stop,), name="left-logs", daemon=True).start()
        log.info("listening", address=self._config.worker_addr)
        self._registration.announce()
        tls = of_process()
        if tls is not None:
            log_diagnosis(self._config.advertise_addr, tls.files)  # report problems before others connect

    def run(self, spark: TaskRunner) -> None:
        """Register, and reconcile until stopped, superseded, or ``spark`` is lost. Raises OPEN_ETCD."""
        self._spark = spark
        self._reconcile_until_stopped()
        self.check_access()

    def check_access(self) -> None:
        """Raise OPEN_ETCD if that is why the worker has stopped."""
        self._access.check()

    def _reconcile_until_stopped(self) -> None:
        for _ in self._etcd.watch(etcd_keys.PREFIX, 0, self._stop, resync_seconds=2.0):
            self._loops.begins(_RECONCILE)
            self._spark.check()
            if self._spark.lost:
                log.error("the Spark driver is gone")
                return
            try:
                snapshot = self._etcd.get_prefix(etcd_keys.PREFIX)
                if snapshot.revision < self._seen:
                    self._begin_anew(snapshot)
                if not self._registration.alive:
                    self._rejoin()
                    snapshot = self._etcd.get_prefix(etcd_keys.PREFIX)
                elif self._registration.superseded():
                    log.error("another process has registered under this name", worker=self._config.name)
                    return
                self._reconcile(snapshot)
            except ShardmergeError as error:
                log.warning("cannot follow the records", error=str(error))
                self._stop.wait(_ETCD_PAUSE_SECONDS)

    def close(self) -> None:
        """Drain within the budget: units stop, the lease is revoked, the server ends."""
        budget = float(self._config.drain_seconds)
        if self._spark.lost:
            budget = min(budget, _LOST_SECONDS)
        self._loops.ended(_RECONCILE)
        log.info("draining", seconds=budget)
        self._watch.stop()
        if self._runner is not None and not self._runner.stop(budget):
            log.warning("subtasks did not end within the drain budget", seconds=budget)
        self._registration.resign()
        self._server.stop(grace=1.0).wait()
        if self._http is not None:
            self._http.stop()
        self._history.end(_HISTORY_SECONDS)
        self._etcd.close()

    # --- calls of the services

    @property
    def epochs(self) -> Epochs:
        return self._registration

    def report(self, request: worker_pb2.WorkerStatusRequest) -> worker_pb2.WorkerStatusResponse:
        return self._status(request.task)

    def _status(self, task: str) -> worker_pb2.WorkerStatusResponse:
        runner, seen = self._runner, self._seen
        if runner is None or runner.converged():
            self._observed = max(self._observed, seen)
        answer = worker_pb2.WorkerStatusResponse(
            worker=self._config.name,
            incarnation=self._registration.incarnation,
            observed_revision=self._observed,
            spark_ui=self._spark.ui_url,
        )
        refused = self._refused
        if refused is not None:
            answer.source = refused[0]
            answer.source_error.CopyFrom(error_to_proto(refused[1]))
        if runner is not None:
            answer.source = runner.config.source_id
            error = runner.source_error()
            if error is not None:
                answer.source_error.CopyFrom(error_to_proto(error))
            relay, subtasks = runner.status(task)
            answer.relay.CopyFrom(relay)
            answer.subtasks.extend(subtasks)
        forecast = NO_FORECAST if runner is None else runner.forecast()
        answer.clock = time.time()
        answer.warnings.extend(warnings_of(self._watch.current(), answer.source, forecast, answer.clock))
        return answer

    def diagnose(
        self, request: worker_pb2.WorkerDiagnoseRequest, is_over: threading.Event
    ) -> worker_pb2.WorkerDiagnoseResponse:
        refused = self._refused
        if refused is not None and refused[0] == request.source:
            return worker_pb2.WorkerDiagnoseResponse(status=self._status(request.task))
        runner = self._bound(request.source)
        subtask = runner.subtask(request.task)
        if subtask is None:
            return worker_pb2.WorkerDiagnoseResponse(status=self._status(request.task))
        target = subtask.config.target
        second, use = diagnose(
            lambda: runner.sample(subtask, is_compared=self._comparisons.figures(request.task).is_running),
            lambda lanes, tables: self._looker.begin(target, lanes, tables),
            request.seconds,
            is_over,
        )
        spark = self._spark
        use.spark.total_slots, use.spark.free_slots, use.spark.lost = spark.total_slots, spark.free_slots, spark.lost
        status = self._status(request.task)
        del status.subtasks[:]
        status.subtasks.append(second.status)
        return worker_pb2.WorkerDiagnoseResponse(status=status, use=use)

    def overview(self, request: worker_pb2.WorkerOverviewRequest) -> worker_pb2.WorkerOverviewResponse:
        answer = worker_pb2.WorkerOverviewResponse()
        runner, refused = self._runner, self._refused
        if refused is not None:
            answer.source = refused[0]
            answer.source_error.CopyFrom(error_to_proto(refused[1]))
        if runner is not None:
            answer.source = runner.config.source_id
            error = runner.source_error()
            if error is not None:
                answer.source_error.CopyFrom(error_to_proto(error))
            answer.subtasks.extend(runner.overview())
        return answer

    def view(self, task: str, source: str) -> WorkerView:
        self._spark.check()
        runs = self._subtask(task, source) is not None
        promised = 0 if self._runner is None else self._runner.promised_slots(task)
        room = SparkSlots(self._spark.total_slots, self._spark.free_slots, promised, self._spark.lost)
        return WorkerView(self._config.name, room, Path(self._config.relay_dir), runs)

    def purge_relay(self, request: worker_pb2.WorkerPurgeRelayRequest) -> worker_pb2.WorkerPurgeRelayResponse:
        return self._bound(request.source).purge_before(request.filename, request.sub_dir)

    def operate_schema(self, request: worker_pb2.WorkerSchemaRequest) -> worker_pb2.WorkerSchemaResponse:
        return self._bound(request.source).operate_schema(request)

    def check_switch(self, request: worker_pb2.CheckSwitchRequest) -> worker_pb2.CheckSwitchResponse:
        return self._bound(request.source.source_id).check_switch(request)

    def relay_needs(self, request: worker_pb2.RelayNeedsRequest) -> worker_pb2.RelayNeedsResponse:
        return self._bound(request.source).relay_needs()

    def diagnostics(self, request: diagnostics_pb2.DiagnosticsRequest) -> diagnostics_pb2.DaemonDiagnostics:
        return self._self_report.report()

    def _programs(self) -> dict[str, str]:
        """The JVM's file, whose path usually names its version: a question to the JVM could wait."""
        pid = self._spark.jvm_pid
        if pid is not None:
            with suppress(psutil.Error):
                return {"java": psutil.Process(pid).exe()}
        return {}

    def _heap(self) -> JvmHeap | None:
        return self._spark.heap()

    def _certificates(self) -> tuple[CertificateFile, ...]:
        """Those of the worker, its source and the targets of its tasks."""
        runner, tls = self._runner, of_process()
        own = files_of_daemon(None if tls is None else tls.files, etcd_tls_of(self._config))
        return own if runner is None else (*own, *files_of_source(runner.config, runner.task_configs()))

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

    def _begin_anew(self, snapshot: RecordSnapshot) -> None:
        """etcd has lost data: what this process has written there, and what it has read of it, is not what etcd has
        now. Every run ends, and begins again with an epoch and reports of its own if the records still require it."""
        log.error("etcd has lost data: its revision is lower than before", now=snapshot.revision, before=self._seen)
        self._registration.lose()
        self._seen = self._observed = 0
        if self._runner is not None:
            self._runner.interrupt()

    def _guard_lease(self) -> None:
        # A separate thread, because the reconcile thread may be waiting for etcd.
        was_alive = False
        while not self._stop.wait(_LEASE_POLL_SECONDS):
            self._loops.begins(_LEASE_GUARD)
            self._serving.update(is_ready=self._probes.readiness("").is_ready)
            alive = self._registration.alive
            runner = self._runner
            if was_alive and not alive and runner is not None:
                log.error("lease lost", error=str(errors.worker.LEASE_LOST(worker=self._config.name)))
                runner.interrupt()
            was_alive = alive
        self._loops.ended(_LEASE_GUARD)
        self._serving.update(is_ready=False)

    # --- records

    def _reconcile(self, snapshot: RecordSnapshot) -> None:
        source = self._bound_source(snapshot)
        runner = self._runner
        if runner is not None and (
            source is None or (source.config != runner.config and not runner.adopt(source.config))
        ):
            log.info("source released", source=runner.config.source_id)
            self._runner = None
            runner.stop(float(self._config.drain_seconds))
            runner = None
            failpoints.hit("source.released")
        if source is not None and runner is None:
            log.info("source bound", source=source.config.source_id)
            runner = self._runner = self._begin(source)
        elif source is not None and runner is not None:
            runner.relay.pause(paused=source.relay_paused)
        self._refused = None
        self._orphaned_logs.update(snapshot)
        self._shards.update(snapshot)
        if runner is not None:
            runner.reconcile(_decisions(snapshot, runner.config.source_id))
        self._seen = snapshot.revision

    def _begin(self, source: state_pb2.SourceRecord) -> SourceRunner:
        """Raises errors of its secrets and of the relay log on disk, and keeps them for :meth:`report`."""
        config = source.config
        directory = Path(self._config.relay_dir) / config.source_id
        try:
            return SourceRunner(
                config,
                directory,
                ServerIdLease(self._etcd, self._registration, config.source_id, config.server_id, derived(directory)),
                OfWorker(
                    self._spark,
                    self._task_service,
                    self._lane_address(),
                    self._registration,
                    lambda: self._registration.alive,
                    self._shards,
                    self._history,
                ),
                relay_paused=source.relay_paused,
            )
        except ShardmergeError as error:
            self._refused = config.source_id, error
            raise

    def _lane_address(self) -> str:
        """Where lanes and chunk readers reach this worker. Those of this machine do not depend on the network that
        others use; a certificate names the advertised host only."""
        if self._spark.is_local and of_process() is None:
            return from_this_machine(self._config.worker_addr)
        return self._config.advertise_addr

    def _bound_source(self, snapshot: RecordSnapshot) -> state_pb2.SourceRecord | None:
        for record in snapshot.records:
            if record.key.startswith(etcd_keys.BOUNDS):
                bound = etcd_keys.decode(state_pb2.BindingRecord, record.value, record.key)
                if bound.worker == self._config.name:
                    return _source(snapshot, bound.source_id)
        return None


def _servers() -> list[diagnostics_pb2.SeenServer]:
    return [
        diagnostics_pb2.SeenServer(side=each.side, address=each.address, version=each.version, at=each.at)
        for each in seen_servers.OF_PROCESS.logins()
    ]


def _source(snapshot: RecordSnapshot, source_id: str) -> state_pb2.SourceRecord | None:
    wanted = etcd_keys.source(source_id)
    for record in snapshot.records:
        if record.key == wanted:
            return etcd_keys.decode(state_pb2.SourceRecord, record.value, record.key)
    return None


def _decisions(snapshot: RecordSnapshot, source_id: str) -> dict[str, Decision]:
    """The source's subtasks by task name."""
    found: dict[str, Decision] = {}
    operations = _operations(snapshot)
    for record in snapshot.records:
        if (
            record.key.startswith(etcd_keys.SUBTASKS)
            and etcd_keys.names(record.key, etcd_keys.SUBTASKS)[1] == source_id
        ):
            subtask = etcd_keys.decode(state_pb2.SubTaskRecord, record.value, record.key)
            found[subtask.config.task] = Decision(
                subtask.config,
                subtask.expected,
                subtask.meta_token,
                subtask.update_token,
                record.mod_revision,
                tuple(_override(op, record.key) for op in subtask.binlog_ops),
                operations.get(subtask.config.task),
            )
    return found


_OVERRIDE_KINDS = {
    state_pb2.BinlogOp.KIND_SKIP: OverrideKind.SKIP,
    state_pb2.BinlogOp.KIND_REPLACE: OverrideKind.REPLACE,
    state_pb2.BinlogOp.KIND_INJECT: OverrideKind.INJECT,
}


def _override(op: state_pb2.BinlogOp, key: str) -> StoredOverride:
    """Raises BAD_RECORD for a kind that this version does not know: nothing may happen at the statement then."""
    kind = _OVERRIDE_KINDS.get(op.kind)
    if kind is None:
        raise errors.master.BAD_RECORD(key=key, reason=f"it overrides a statement in an unknown way, {op.kind}")
    return StoredOverride(kind, op.file, op.pos, op.statements, op.server)


def _operations(snapshot: RecordSnapshot) -> dict[str, Operation]:
    """The last command of each task. One that cannot be read matters to no task."""
    found: dict[str, Operation] = {}
    for record in snapshot.records:
        if record.key.startswith(etcd_keys.OPERATIONS):
            with suppress(ShardmergeError):
                command = etcd_keys.decode(state_pb2.OperationRecord, record.value, record.key)
                if command.id:
                    [task] = etcd_keys.names(record.key, etcd_keys.OPERATIONS)
                    found[task] = Operation(command.id, command.span)
    return found
