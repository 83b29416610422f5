"""The methods by which masters question a worker, and use what it can reach."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from shardmerge.proto import diagnostics_pb2, errors, worker_pb2
from shardmerge.proto.config_pb2 import SourceConfig, SubTaskConfig
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.escaped_text import escaped
from shardmerge.proto.rpc.server import Handler
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
    """The operations of the daemon that the methods need. Those of a source raise NOT_BOUND for another source than
    its own."""

    @property
    def epochs(self) -> Epochs: ...

    def report(self, request: worker_pb2.WorkerStatusRequest) -> worker_pb2.WorkerStatusResponse: ...

    def diagnose(
        self, request: worker_pb2.WorkerDiagnoseRequest, is_over: threading.Event
    ) -> worker_pb2.WorkerDiagnoseResponse:
        """Takes seconds, or until ``is_over``; has no figures if the subtask has not begun."""
        ...

    def overview(self, request: worker_pb2.WorkerOverviewRequest) -> worker_pb2.WorkerOverviewResponse: ...

    def view(self, task: str, source: str) -> WorkerView:
        """The state of the worker for a pre-check of this subtask."""
        ...

    def purge_relay(self, request: worker_pb2.WorkerPurgeRelayRequest) -> worker_pb2.WorkerPurgeRelayResponse:
        """Raises what Relay.purge_before raises."""
        ...

    def operate_schema(self, request: worker_pb2.WorkerSchemaRequest) -> worker_pb2.WorkerSchemaResponse:
        """Raises what SourceRunner.operate_schema raises."""
        ...

    def check_switch(self, request: worker_pb2.CheckSwitchRequest) -> worker_pb2.CheckSwitchResponse:
        """Raises what SourceRunner.check_switch raises."""
        ...

    def relay_needs(self, request: worker_pb2.RelayNeedsRequest) -> worker_pb2.RelayNeedsResponse:
        """Raises errors of the relay log."""
        ...

    def diagnostics(self, request: diagnostics_pb2.DiagnosticsRequest) -> diagnostics_pb2.DaemonDiagnostics:
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


def handlers(daemon: DaemonOperations) -> dict[str, Handler]:
    """The handlers of the service ``Worker``. Decisions reach the worker through etcd. A purge or a changed structure
    is not a decision: nothing of it has to be carried out later."""

    def check_configured_subtask(request: worker_pb2.CheckSubTaskRequest) -> worker_pb2.CheckResponse:
        check_request = from_request(request, daemon.view(request.subtask.task, request.source.source_id))
        return worker_pb2.CheckResponse(results=check_subtask(request.source, request.subtask, check_request))

    def forget(request: worker_pb2.WorkerForgetTaskRequest) -> worker_pb2.WorkerForgetTaskResponse:
        if request.only_mixed:
            return at_target(request.subtask, lambda session: mixed_rows(session, request.subtask))
        return at_target(
            request.subtask,
            lambda session: forget_task(session, request.subtask, request.epoch, daemon.epochs),
            seconds=_LONG_SECONDS,
        )

    def rename(request: worker_pb2.WorkerRenameTargetRequest) -> worker_pb2.WorkerRenameTargetResponse:
        if not request.subtasks:
            raise errors.worker.CONFIG_REFUSED(field="subtasks", reason="there is none")
        return at_target(
            request.subtasks[0],
            lambda session: rename_target(session, request.subtasks, request.epoch, daemon.epochs),
            seconds=_LONG_SECONDS,
        )

    def diagnose(
        request: worker_pb2.WorkerDiagnoseRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerDiagnoseResponse:
        is_over = threading.Event()
        if not context.add_callback(is_over.set):
            is_over.set()
        return daemon.diagnose(request, is_over)

    answers: dict[str, Callable[[Any], Any]] = {
        "QueryStatus": daemon.report,
        "CheckSource": lambda request: worker_pb2.CheckResponse(results=check_source(request.source)),
        "CheckSubTask": check_configured_subtask,
        "CheckShards": check_shards,
        "CheckKeys": check_keys,
        "ReadKeys": read_keys,
        "PreviewUpdate": lambda request: preview_update(request.source, request.subtask),
        "ExplainRules": explain_rules,
        "ShowTargets": show_targets,
        "PreviewDDL": preview_ddl,
        "ListSkipped": _skipped,
        "Quarantine": _quarantine,
        "ForgetTask": forget,
        "RenameTarget": rename,
        "PurgeRelay": daemon.purge_relay,
        "OperateSchema": daemon.operate_schema,
        "CheckSwitch": daemon.check_switch,
        "RelayNeeds": daemon.relay_needs,
        "CheckMove": _check_move,
        "Diagnostics": daemon.diagnostics,
        "Overview": daemon.overview,
    }
    return {**{name: _of_checked(answer) for name, answer in answers.items()}, "Diagnose": diagnose}


def _of_checked(answer: Callable[[Any], Any]) -> Handler:
    def handle(request: Message, _: grpc.ServicerContext) -> Any:
        _check_configs(request)
        return answer(request)

    return handle


def _skipped(request: worker_pb2.WorkerSkippedRequest) -> worker_pb2.WorkerSkippedResponse:
    place = (request.file, request.pos) if request.file else None
    return at_target(request.subtask, lambda session: skipped_store.read(session, who_of(request.subtask), place))


def _quarantine(request: worker_pb2.WorkerQuarantineRequest) -> worker_pb2.WorkerQuarantineResponse:
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


def _check_move(request: worker_pb2.CheckMoveRequest) -> worker_pb2.CheckMoveResponse:
    endpoint = Endpoint.from_proto(getattr(request.source, "from"))
    check_reach(request.source.source_id, endpoint, SourcePosition.from_proto(request.needed))
    return worker_pb2.CheckMoveResponse()
