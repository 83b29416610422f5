"""The gRPC service of a master: hands every request to the command that answers it."""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from shardmerge.master.commands.cluster.configs import ConfigCommand
from shardmerge.master.commands.cluster.diagnostics import DiagnosticsCommand
from shardmerge.master.commands.cluster.leadership import LeaderCommand, offline
from shardmerge.master.commands.cluster.members import MembersCommand
from shardmerge.master.commands.source.operate import SourceCommands
from shardmerge.master.commands.source.relay import RelayCommands
from shardmerge.master.commands.source.transfer import TransferCommand
from shardmerge.master.commands.task.binlog import BinlogCommand
from shardmerge.master.commands.task.binlog_schema import SchemaCommand
from shardmerge.master.commands.task.ddl_locks import DdlLockCommands
from shardmerge.master.commands.task.ddl_preview import PreviewCommand
from shardmerge.master.commands.task.history import HistoryCommand
from shardmerge.master.commands.task.operate import TaskCommands
from shardmerge.master.commands.task.quarantine import QuarantineCommand
from shardmerge.master.commands.task.rename_target import RenameCommand
from shardmerge.master.commands.task.rules import RulesCommand
from shardmerge.master.commands.task.status import StatusCommand
from shardmerge.master.commands.task.update import UpdateCommand
from shardmerge.master.commands.task.why import WhyCommand
from shardmerge.master.store import Store
from shardmerge.master.task_history.command_log import CommandLog
from shardmerge.proto import diagnostics_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.master_pb2_grpc import MasterServicer
from shardmerge.proto.rpc.caller import is_private

SERVICE = "shardmerge.v1.Master"


class Service(MasterServicer):
    """Every master answers queries; only the leader takes decisions (others answer NOT_LEADER)."""

    def __init__(
        self,
        store: Store,
        sources: SourceCommands,
        tasks: TaskCommands,
        updates: UpdateCommand,
        renames: RenameCommand,
        status: StatusCommand,
        relays: RelayCommands,
        locks: DdlLockCommands,
        binlog_ops: BinlogCommand,
        previews: PreviewCommand,
        schemas: SchemaCommand,
        quarantines: QuarantineCommand,
        explanations: RulesCommand,
        configs: ConfigCommand,
        transfers: TransferCommand,
        leaders: LeaderCommand,
        diagnostics: DiagnosticsCommand,
        history: HistoryCommand,
        commands: CommandLog,
        members: MembersCommand,
        whys: WhyCommand,
    ) -> None:
        self._store = store
        self._sources = sources
        self._tasks = tasks
        self._updates = updates
        self._renames = renames
        self._status = status
        self._relays = relays
        self._locks = locks
        self._binlog_ops = binlog_ops
        self._previews = previews
        self._schemas = schemas
        self._quarantines = quarantines
        self._explanations = explanations
        self._configs = configs
        self._transfers = transfers
        self._leaders = leaders
        self._diagnostics = diagnostics
        self._history = history
        self._commands = commands
        self._members = members
        self._whys = whys

    def OperateSource(
        self, request: pb.OperateSourceRequest, context: grpc.ServicerContext
    ) -> pb.OperateSourceResponse:
        return self._commands.run(request, context, self._sources.operate)

    def TransferSource(
        self, request: pb.TransferSourceRequest, context: grpc.ServicerContext
    ) -> pb.TransferSourceResponse:
        return self._commands.run(request, context, self._transfers.transfer)

    def OperateRelay(self, request: pb.OperateRelayRequest, context: grpc.ServicerContext) -> pb.OperateRelayResponse:
        return self._commands.run(request, context, self._relays.operate)

    def StartTask(self, request: pb.StartTaskRequest, context: grpc.ServicerContext) -> pb.StartTaskResponse:
        return self._commands.run(request, context, self._tasks.start)

    def UpdateTask(self, request: pb.UpdateTaskRequest, context: grpc.ServicerContext) -> pb.UpdateTaskResponse:
        update = self._renames.rename if request.rename_target else self._updates.update
        return self._commands.run(request, context, update)

    def OperateTask(self, request: pb.OperateTaskRequest, context: grpc.ServicerContext) -> pb.OperateTaskResponse:
        return self._commands.run(request, context, self._tasks.operate)

    def QueryStatus(self, request: pb.QueryStatusRequest, context: grpc.ServicerContext) -> pb.QueryStatusResponse:
        return self._status.query(request)

    def CheckTask(self, request: pb.CheckTaskRequest, context: grpc.ServicerContext) -> pb.CheckTaskResponse:
        return self._tasks.check(request)

    def ListMember(self, request: pb.ListMemberRequest, context: grpc.ServicerContext) -> pb.ListMemberResponse:
        return self._members.list(request)

    def HandleBinlog(self, request: pb.HandleBinlogRequest, context: grpc.ServicerContext) -> pb.HandleBinlogResponse:
        return self._commands.run(request, context, self._binlog_ops.handle)

    def Quarantine(self, request: pb.QuarantineRequest, context: grpc.ServicerContext) -> pb.QuarantineResponse:
        return self._commands.run(request, context, self._quarantines.operate)

    def PurgeRelay(self, request: pb.PurgeRelayRequest, context: grpc.ServicerContext) -> pb.PurgeRelayResponse:
        return self._commands.run(request, context, self._relays.purge)

    def ShowDDLLocks(self, request: pb.ShowDDLLocksRequest, context: grpc.ServicerContext) -> pb.ShowDDLLocksResponse:
        return self._locks.show(request)

    def UnlockDDLLock(
        self, request: pb.UnlockDDLLockRequest, context: grpc.ServicerContext
    ) -> pb.UnlockDDLLockResponse:
        return self._commands.run(request, context, self._locks.unlock)

    def OperateLeader(
        self, request: pb.OperateLeaderRequest, context: grpc.ServicerContext
    ) -> pb.OperateLeaderResponse:
        return self._leaders.operate(request)

    def OfflineMember(
        self, request: pb.OfflineMemberRequest, context: grpc.ServicerContext
    ) -> pb.OfflineMemberResponse:
        return offline(request, self._store)

    def GetConfig(self, request: pb.GetConfigRequest, context: grpc.ServicerContext) -> pb.GetConfigResponse:
        return self._configs.get(request, context.peer(), private=is_private(context))

    def ExplainRules(self, request: pb.ExplainRulesRequest, context: grpc.ServicerContext) -> pb.ExplainRulesResponse:
        return self._explanations.explain(request)

    def ShowTargets(self, request: pb.ExplainRulesRequest, context: grpc.ServicerContext) -> pb.ShowTargetsResponse:
        return self._explanations.show_targets(request)

    def PreviewDDL(self, request: pb.PreviewDDLRequest, context: grpc.ServicerContext) -> pb.PreviewDDLResponse:
        return self._previews.preview(request)

    def OperateSchema(
        self, request: pb.OperateSchemaRequest, context: grpc.ServicerContext
    ) -> pb.OperateSchemaResponse:
        return self._commands.run(request, context, self._schemas.operate)

    def History(self, request: pb.HistoryRequest, context: grpc.ServicerContext) -> pb.HistoryResponse:
        return self._history.query(request)

    def Diagnostics(
        self, request: diagnostics_pb2.DiagnosticsRequest, context: grpc.ServicerContext
    ) -> diagnostics_pb2.DaemonDiagnostics:
        return self._diagnostics.own.report()

    def CollectDiagnostics(
        self, request: diagnostics_pb2.DiagnosticsRequest, context: grpc.ServicerContext
    ) -> Iterator[diagnostics_pb2.DiagnosticsPart]:
        return self._diagnostics.collect(context.peer())

    def Diagnose(self, request: pb.DiagnoseRequest, context: grpc.ServicerContext) -> pb.DiagnoseResponse:
        return self._whys.diagnose(request)

    def Overview(self, request: pb.OverviewRequest, context: grpc.ServicerContext) -> pb.OverviewResponse:
        return self._whys.overview(request)
