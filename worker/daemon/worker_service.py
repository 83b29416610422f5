"""The worker's gRPC service for the master."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

import grpc
from google.protobuf.message import Message

from shardmerge.proto import diagnostics_pb2, errors, worker_pb2, worker_pb2_grpc
from shardmerge.proto.config_pb2 import SourceConfig, SubTaskConfig
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.escaped_text import escaped
from shardmerge.worker.core.mysql.connection import Endpoint, Session
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.daemon.commands import quarantine
from shardmerge.worker.daemon.commands.explain_rules import explain_rules
from shardmerge.worker.daemon.commands.forget_task import forget_task, mixed_rows
from shardmerge.worker.daemon.commands.preview_ddl import preview_ddl
from shardmerge.worker.daemon.commands.preview_update import preview_update
from shardmerge.worker.daemon.commands.quarantine import KeySelection
from shardmerge.worker.daemon.commands.rename_target import rename_target
from shardmerge.worker.daemon.commands.show_targets import show_targets
from shardmerge.worker.relay.fetch.server_change import check_reach
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.quarantine import skipped_store
from shardmerge.worker.unit.contract import Epochs
from shardmerge.worker.unit.run_context import at_target, who_of
from shardmerge.worker.verify.precheck import (
    WorkerView,
    check_keys,
    check_shards,
    check_source,
    check_subtask,
    from_request,
    read_keys,
)

_LONG_SECONDS = 300.0  # one answer of the target: a statement may wait for a lock, or delete the records of many chunks


class DaemonOperations(Protocol):
    """The operations of the daemon that the service needs."""

    @property
    def epochs(self) -> Epochs: ...

    def report(self, task: str) -> worker_pb2.WorkerStatusResponse: ...

    def diagnose(
        self, request: worker_pb2.WorkerDiagnoseRequest, is_over: threading.Event
    ) -> worker_pb2.WorkerDiagnoseResponse:
        """Takes seconds, or until ``is_over``; has no figures if the subtask has not begun. Raises NOT_BOUND for
        another source than its own."""
        ...

    def overview(self) -> worker_pb2.WorkerOverviewResponse: ...

    def view(self, task: str, source: str) -> WorkerView:
        """The state of the worker for a pre-check of this subtask."""
        ...

    def purge_relay(self, request: worker_pb2.WorkerPurgeRelayRequest) -> worker_pb2.WorkerPurgeRelayResponse:
        """Raises NOT_BOUND for another source than its own, and what Relay.purge_before raises."""
        ...

    def operate_schema(self, request: worker_pb2.WorkerSchemaRequest) -> worker_pb2.WorkerSchemaResponse:
        """Raises NOT_BOUND for another source than its own, and what SourceRunner.operate_schema raises."""
        ...

    def check_switch(self, request: worker_pb2.CheckSwitchRequest) -> worker_pb2.CheckSwitchResponse:
        """Raises NOT_BOUND for another source than its own, and what SourceRunner.check_switch raises."""
        ...

    def relay_needs(self, source: str) -> worker_pb2.RelayNeedsResponse:
        """Raises NOT_BOUND for another source than its own, and errors of the relay log."""
        ...

    def diagnostics(self) -> diagnostics_pb2.DaemonDiagnostics:
        """What the worker knows of itself, from memory."""
        ...


def _check_configs(request: Message) -> None:
    """Raises CONFIG_REFUSED for a configuration that a master would never send: each field is valid by itself, but the
    combination is not."""
    for field, value in request.ListFields():
        for config in value if field.is_repeated else [value]:
            try:
                if isinstance(config, SubTaskConfig):
                    _ = Rules.from_config(config), Endpoint.from_proto(config.target)
                elif isinstance(config, SourceConfig):
                    _ = Endpoint.from_proto(getattr(config, "from"))
            except ShardmergeError:
                raise
            except Exception as error:  # the code that reads configurations expects those of masters only
                reason = f"{type(error).__name__}: {error}"
                raise errors.worker.CONFIG_REFUSED(field=field.name, reason=escaped(reason, 200)) from error


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """Answers the master's requests; decisions reach the worker through etcd. A purge or a changed structure is not a
    decision: nothing of it has to be carried out later."""

    def __init__(self, daemon: DaemonOperations) -> None:
        self._daemon = daemon

    def QueryStatus(
        self, request: worker_pb2.WorkerStatusRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerStatusResponse:
        return self._daemon.report(request.task)

    def CheckSource(
        self, request: worker_pb2.CheckSourceRequest, context: grpc.ServicerContext
    ) -> worker_pb2.CheckResponse:
        _check_configs(request)
        return worker_pb2.CheckResponse(results=check_source(request.source))

    def CheckSubTask(
        self, request: worker_pb2.CheckSubTaskRequest, context: grpc.ServicerContext
    ) -> worker_pb2.CheckResponse:
        _check_configs(request)
        check_request = from_request(request, self._daemon.view(request.subtask.task, request.source.source_id))
        return worker_pb2.CheckResponse(results=check_subtask(request.source, request.subtask, check_request))

    def CheckShards(
        self, request: worker_pb2.CheckShardsRequest, context: grpc.ServicerContext
    ) -> worker_pb2.CheckShardsResponse:
        _check_configs(request)
        return check_shards(request)

    def CheckKeys(
        self, request: worker_pb2.CheckKeysRequest, context: grpc.ServicerContext
    ) -> worker_pb2.CheckKeysResponse:
        _check_configs(request)
        return check_keys(request)

    def ReadKeys(
        self, request: worker_pb2.ReadKeysRequest, context: grpc.ServicerContext
    ) -> Iterator[worker_pb2.KeyBatch]:
        _check_configs(request)
        return read_keys(request)

    def PreviewUpdate(
        self, request: worker_pb2.PreviewUpdateRequest, context: grpc.ServicerContext
    ) -> worker_pb2.PreviewUpdateResponse:
        _check_configs(request)
        return preview_update(request.source, request.subtask)

    def ExplainRules(
        self, request: worker_pb2.WorkerExplainRulesRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerExplainRulesResponse:
        _check_configs(request)
        return explain_rules(request)

    def ShowTargets(
        self, request: worker_pb2.WorkerExplainRulesRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerShowTargetsResponse:
        _check_configs(request)
        return show_targets(request)

    def PreviewDDL(
        self, request: worker_pb2.WorkerPreviewDDLRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerPreviewDDLResponse:
        _check_configs(request)
        return preview_ddl(request)

    def ListSkipped(
        self, request: worker_pb2.WorkerSkippedRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerSkippedResponse:
        _check_configs(request)
        place = (request.file, request.pos) if request.file else None
        return at_target(request.subtask, lambda session: skipped_store.read(session, who_of(request.subtask), place))

    def Quarantine(
        self, request: worker_pb2.WorkerQuarantineRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerQuarantineResponse:
        _check_configs(request)
        who, choice = who_of(request.subtask), KeySelection(request.table, request.key)
        safe_mode = request.subtask.replicate.safe_mode

        def work(session: Session) -> worker_pb2.WorkerQuarantineResponse:
            match request.op:
                case worker_pb2.QUARANTINE_OP_RETRY:
                    return quarantine.retry(session, who, choice, safe_mode=safe_mode)
                case worker_pb2.QUARANTINE_OP_DROP:
                    return quarantine.drop(session, who, choice)
                case _:
                    return quarantine.list_held(session, who, choice)

        return at_target(request.subtask, work, seconds=_LONG_SECONDS)

    def ForgetTask(
        self, request: worker_pb2.WorkerForgetTaskRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerForgetTaskResponse:
        _check_configs(request)
        if request.only_mixed:
            return at_target(request.subtask, lambda session: mixed_rows(session, request.subtask))
        return at_target(
            request.subtask,
            lambda session: forget_task(session, request.subtask, request.epoch, self._daemon.epochs),
            seconds=_LONG_SECONDS,
        )

    def RenameTarget(
        self, request: worker_pb2.WorkerRenameTargetRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerRenameTargetResponse:
        _check_configs(request)
        if not request.subtasks:
            raise errors.worker.CONFIG_REFUSED(field="subtasks", reason="there is none")
        return at_target(
            request.subtasks[0],
            lambda session: rename_target(session, request.subtasks, request.epoch, self._daemon.epochs),
            seconds=_LONG_SECONDS,
        )

    def PurgeRelay(
        self, request: worker_pb2.WorkerPurgeRelayRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerPurgeRelayResponse:
        return self._daemon.purge_relay(request)

    def OperateSchema(
        self, request: worker_pb2.WorkerSchemaRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerSchemaResponse:
        return self._daemon.operate_schema(request)

    def CheckSwitch(
        self, request: worker_pb2.CheckSwitchRequest, context: grpc.ServicerContext
    ) -> worker_pb2.CheckSwitchResponse:
        _check_configs(request)
        return self._daemon.check_switch(request)

    def RelayNeeds(
        self, request: worker_pb2.RelayNeedsRequest, context: grpc.ServicerContext
    ) -> worker_pb2.RelayNeedsResponse:
        return self._daemon.relay_needs(request.source)

    def CheckMove(
        self, request: worker_pb2.CheckMoveRequest, context: grpc.ServicerContext
    ) -> worker_pb2.CheckMoveResponse:
        _check_configs(request)
        endpoint = Endpoint.from_proto(getattr(request.source, "from"))
        check_reach(request.source.source_id, endpoint, SourcePosition.from_proto(request.needed))
        return worker_pb2.CheckMoveResponse()

    def Diagnostics(
        self, request: diagnostics_pb2.DiagnosticsRequest, context: grpc.ServicerContext
    ) -> diagnostics_pb2.DaemonDiagnostics:
        return self._daemon.diagnostics()

    def Diagnose(
        self, request: worker_pb2.WorkerDiagnoseRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerDiagnoseResponse:
        is_over = threading.Event()
        if not context.add_callback(is_over.set):
            is_over.set()
        return self._daemon.diagnose(request, is_over)

    def Overview(
        self, request: worker_pb2.WorkerOverviewRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerOverviewResponse:
        return self._daemon.overview()
