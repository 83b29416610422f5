"""Simulates a worker that follows the records in etcd and moves no data: it shows what a master sees of a worker."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import grpc

from shardmerge.proto import common_pb2, diagnostics_pb2, etcd_keys
from shardmerge.proto import state_pb2 as state
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.common_pb2 import ErrorDetail, Stage
from shardmerge.proto.diagnose_pb2 import SubTaskOverview
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.rpc.server import listen, make_server
from shardmerge.proto.worker_pb2_grpc import WorkerServicer, add_WorkerServicer_to_server


@dataclass
class Behaviour:
    """How the worker behaves. ``paused_with``: the error with which every started subtask pauses. ``source_error``: why
    its source cannot be used. ``relay_error``: why its relay has stopped. ``subtask_results``: results of checks of
    subtasks only. ``is_earlier``: it is of a version without Diagnose, Overview and the call of a support bundle.
    ``is_silent``: it never answers the last. ``meanwhile``: called while a switch is checked."""

    paused_with: ErrorDetail | None = None
    source_error: ErrorDetail | None = None
    relay_error: ErrorDetail | None = None
    check_results: list[pb.CheckResult] = field(default_factory=list[pb.CheckResult])
    subtask_results: list[pb.CheckResult] = field(default_factory=list[pb.CheckResult])
    check_errors: list[ErrorDetail] = field(default_factory=list[ErrorDetail])
    key_shards: list[pb.KeyShard] = field(default_factory=list[pb.KeyShard])
    key_clashes: list[pb.KeyClash] = field(default_factory=list[pb.KeyClash])
    key_batches: list[pb.KeyBatch] = field(default_factory=list[pb.KeyBatch])
    table_changes: list[pb.TableChange] = field(default_factory=list[pb.TableChange])
    deaf: bool = False
    is_earlier: bool = False
    switch: pb.CheckSwitchResponse = field(default_factory=pb.CheckSwitchResponse)
    switch_error: ShardmergeError | None = None
    needed: str = ""
    move_error: ShardmergeError | None = None
    next_server: str = ""
    meanwhile: Callable[[], None] = lambda: None
    is_silent: bool = False


class FakeWorker(WorkerServicer):
    def __init__(self, name: str, endpoint: str, ttl: float = 120.0, settings: str = "") -> None:
        self.name = name
        self._settings = settings
        self._endpoint = endpoint
        self.behaviour = Behaviour()
        self.checked: list[pb.CheckSubTaskRequest] = []
        self.sources_checked = 0
        self.overviews = 0
        self.switches: list[pb.CheckSwitchRequest] = []
        self.moves: list[pb.CheckMoveRequest] = []
        self._etcd = Etcd((endpoint,))
        self._ttl = ttl
        self._lock = threading.Lock()
        self._status = pb.WorkerStatusResponse(worker=name)
        self._stop = threading.Event()
        self._server = make_server(("shardmerge.v1.Worker",), name)
        add_WorkerServicer_to_server(self, self._server)
        self._port = listen(self._server, "127.0.0.1:0")
        self._thread = threading.Thread(target=self._obey, name=name, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> FakeWorker:
        self._server.start()
        self._lease = self._etcd.lease(self._ttl)
        record = state.WorkerRecord(name=self.name, address=self.address, incarnation="1", settings=self._settings)
        self._etcd.put(etcd_keys.worker(self.name), etcd_keys.encode(record), self._lease.id)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End cleanly: the worker's record is removed at once."""
        self._stop.set()
        self._thread.join()
        self._lease.revoke()
        self._server.stop(0).wait()
        self._etcd.close()

    def vanish(self) -> None:
        """End like a kill -9: no answer from now on, and the record stays until :meth:`lapse`."""
        self._stop.set()
        self._thread.join()
        self._lease.abandon()
        self._server.stop(0).wait()
        self._etcd.close()

    def lapse(self) -> None:
        """End the lease of a worker that has vanished. Its time is so long that even a slow machine renews it in
        time."""
        with Etcd((self._endpoint,), 60.0) as client:
            client.revoke(self._lease.id)

    @property
    def source(self) -> str:
        with self._lock:
            return self._status.source

    def _obey(self) -> None:
        for _ in self._etcd.watch(etcd_keys.PREFIX, 0, self._stop, 1.0):
            if not self.behaviour.deaf:
                with contextlib.suppress(ShardmergeError):  # etcd is not reachable: the next report retries
                    self._act()

    def _act(self) -> None:
        snapshot = self._etcd.get_prefix(etcd_keys.PREFIX)
        status = pb.WorkerStatusResponse(worker=self.name, observed_revision=snapshot.revision)
        for record in snapshot.records:
            if record.key.startswith(etcd_keys.BOUNDS):
                binding = etcd_keys.decode(state.BindingRecord, record.value, record.key)
                if binding.worker == self.name:
                    status.source = binding.source_id
        for record in snapshot.records:
            if record.key.startswith(etcd_keys.SUBTASKS):
                subtask = etcd_keys.decode(state.SubTaskRecord, record.value, record.key)
                if subtask.config.source_id == status.source:
                    self._obey_subtask(subtask, status.subtasks.add(name=subtask.config.task))
        status.relay.stage = common_pb2.STAGE_RUNNING
        with self._lock:
            self._status = status

    def _obey_subtask(self, record: state.SubTaskRecord, status: pb.SubTaskStatus) -> None:
        wanted: Stage = record.expected
        status.unit = common_pb2.UNIT_SNAPSHOT
        if self.behaviour.next_server:
            status.sync.next_server = self.behaviour.next_server
        if wanted == common_pb2.STAGE_RUNNING and self.behaviour.paused_with is not None:
            status.stage = common_pb2.STAGE_PAUSED
            status.result.errors.append(self.behaviour.paused_with)
        else:
            status.stage = wanted

    def QueryStatus(self, request: pb.WorkerStatusRequest, context: grpc.ServicerContext) -> pb.WorkerStatusResponse:
        answer = pb.WorkerStatusResponse()
        with self._lock:
            answer.CopyFrom(self._status)
        if self.behaviour.source_error is not None:
            answer.source_error.CopyFrom(self.behaviour.source_error)
        if self.behaviour.relay_error is not None:
            answer.relay.result.CopyFrom(self.behaviour.relay_error)
        if request.task:
            kept = [one for one in answer.subtasks if one.name == request.task]
            del answer.subtasks[:]
            answer.subtasks.extend(kept)
        return answer

    def CheckSource(self, request: pb.CheckSourceRequest, context: grpc.ServicerContext) -> pb.CheckResponse:
        self.sources_checked += 1
        return pb.CheckResponse(results=self.behaviour.check_results, errors=self.behaviour.check_errors)

    def CheckSubTask(self, request: pb.CheckSubTaskRequest, context: grpc.ServicerContext) -> pb.CheckResponse:
        self.checked.append(request)
        results = [*self.behaviour.check_results, *self.behaviour.subtask_results]
        return pb.CheckResponse(results=results, errors=self.behaviour.check_errors)

    def CheckShards(self, request: pb.CheckShardsRequest, context: grpc.ServicerContext) -> pb.CheckShardsResponse:
        return pb.CheckShardsResponse()

    def CheckKeys(self, request: pb.CheckKeysRequest, context: grpc.ServicerContext) -> pb.CheckKeysResponse:
        return pb.CheckKeysResponse(shards=self.behaviour.key_shards, clashes=self.behaviour.key_clashes)

    def ReadKeys(self, request: pb.ReadKeysRequest, context: grpc.ServicerContext) -> Iterator[pb.KeyBatch]:
        return iter(self.behaviour.key_batches)

    def PreviewUpdate(
        self, request: pb.PreviewUpdateRequest, context: grpc.ServicerContext
    ) -> pb.PreviewUpdateResponse:
        return pb.PreviewUpdateResponse(tables=self.behaviour.table_changes)

    def ExplainRules(
        self, request: pb.WorkerExplainRulesRequest, context: grpc.ServicerContext
    ) -> pb.WorkerExplainRulesResponse:
        tables = [
            pb.TableRules(source=request.source.source_id, schema=each.schema, table=each.table)
            for each in request.tables
        ]
        return pb.WorkerExplainRulesResponse(tables=tables)

    def ShowTargets(
        self, request: pb.WorkerExplainRulesRequest, context: grpc.ServicerContext
    ) -> pb.WorkerShowTargetsResponse:
        raise NotImplementedError

    def PreviewDDL(
        self, request: pb.WorkerPreviewDDLRequest, context: grpc.ServicerContext
    ) -> pb.WorkerPreviewDDLResponse:
        raise NotImplementedError

    def ForgetTask(
        self, request: pb.WorkerForgetTaskRequest, context: grpc.ServicerContext
    ) -> pb.WorkerForgetTaskResponse:
        raise NotImplementedError

    def RenameTarget(
        self, request: pb.WorkerRenameTargetRequest, context: grpc.ServicerContext
    ) -> pb.WorkerRenameTargetResponse:
        raise NotImplementedError

    def OperateSchema(self, request: pb.WorkerSchemaRequest, context: grpc.ServicerContext) -> pb.WorkerSchemaResponse:
        raise NotImplementedError

    def CheckSwitch(self, request: pb.CheckSwitchRequest, context: grpc.ServicerContext) -> pb.CheckSwitchResponse:
        self.switches.append(request)
        self.behaviour.meanwhile()
        if self.behaviour.switch_error is not None:
            raise self.behaviour.switch_error
        return self.behaviour.switch

    def RelayNeeds(self, request: pb.RelayNeedsRequest, context: grpc.ServicerContext) -> pb.RelayNeedsResponse:
        answer = pb.RelayNeedsResponse()
        if self.behaviour.needed:
            answer.needed.file = self.behaviour.needed
        return answer

    def CheckMove(self, request: pb.CheckMoveRequest, context: grpc.ServicerContext) -> pb.CheckMoveResponse:
        self.moves.append(request)
        if self.behaviour.move_error is not None:
            raise self.behaviour.move_error
        return pb.CheckMoveResponse()

    def _refuse_if_earlier(self, context: grpc.ServicerContext) -> None:
        if self.behaviour.is_earlier:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    def Diagnose(self, request: pb.WorkerDiagnoseRequest, context: grpc.ServicerContext) -> pb.WorkerDiagnoseResponse:
        self._refuse_if_earlier(context)
        return pb.WorkerDiagnoseResponse(status=self.QueryStatus(pb.WorkerStatusRequest(task=request.task), context))

    def Overview(self, request: pb.WorkerOverviewRequest, context: grpc.ServicerContext) -> pb.WorkerOverviewResponse:
        self._refuse_if_earlier(context)
        self.overviews += 1
        status = self.QueryStatus(pb.WorkerStatusRequest(), context)
        subtasks = [SubTaskOverview(task=one.name, stage=one.stage, unit=one.unit) for one in status.subtasks]
        return pb.WorkerOverviewResponse(source=status.source, subtasks=subtasks)

    def ListSkipped(self, request: pb.WorkerSkippedRequest, context: grpc.ServicerContext) -> pb.WorkerSkippedResponse:
        return pb.WorkerSkippedResponse()

    def Quarantine(
        self, request: pb.WorkerQuarantineRequest, context: grpc.ServicerContext
    ) -> pb.WorkerQuarantineResponse:
        return pb.WorkerQuarantineResponse()

    def PurgeRelay(
        self, request: pb.WorkerPurgeRelayRequest, context: grpc.ServicerContext
    ) -> pb.WorkerPurgeRelayResponse:
        return pb.WorkerPurgeRelayResponse(
            purged_segments=2,
            purged_bytes=512,
            relay_begin=f"({request.filename}, 4)",
            kept=f"{request.source} {request.filename} {request.sub_dir}",
        )

    def Diagnostics(
        self, request: diagnostics_pb2.DiagnosticsRequest, context: grpc.ServicerContext
    ) -> diagnostics_pb2.DaemonDiagnostics:
        if self.behaviour.is_earlier:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        while self.behaviour.is_silent and context.is_active():
            self._stop.wait(0.1)
        return diagnostics_pb2.DaemonDiagnostics(daemon="dm-worker", name=self.name)
