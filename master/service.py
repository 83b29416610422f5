"""The gRPC service of a master: hands every request to the command that answers it."""

from __future__ import annotations

import grpc

from shardmerge.master.commands.cluster.configs import ConfigCommand
from shardmerge.master.commands.cluster.leadership import LeaderCommand, offline
from shardmerge.master.commands.cluster.members import list_members
from shardmerge.master.commands.source.operate import SourceCommands
from shardmerge.master.commands.source.relay import RelayCommands
from shardmerge.master.commands.source.transfer import TransferCommand
from shardmerge.master.commands.task.binlog import BinlogCommand
from shardmerge.master.commands.task.binlog_schema import SchemaCommand
from shardmerge.master.commands.task.ddl_locks import DdlLockCommands
from shardmerge.master.commands.task.ddl_preview import PreviewCommand
from shardmerge.master.commands.task.operate import TaskCommands
from shardmerge.master.commands.task.quarantine import QuarantineCommand
from shardmerge.master.commands.task.rename_target import RenameCommand
from shardmerge.master.commands.task.rules import RulesCommand
from shardmerge.master.commands.task.status import StatusCommand
from shardmerge.master.commands.task.update import UpdateCommand
from shardmerge.master.store import Store
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

    def OperateSource(
        self, request: pb.OperateSourceRequest, context: grpc.ServicerContext
    ) -> pb.OperateSourceResponse:
        return self._sources.operate(request)

    def TransferSource(
        self, request: pb.TransferSourceRequest, context: grpc.ServicerContext
    ) -> pb.TransferSourceResponse:
        return self._transfers.transfer(request)

    def OperateRelay(self, request: pb.OperateRelayRequest, context: grpc.ServicerContext) -> pb.OperateRelayResponse:
        return self._relays.operate(request)

    def StartTask(self, request: pb.StartTaskRequest, context: grpc.ServicerContext) -> pb.StartTaskResponse:
        return self._tasks.start(request)

    def UpdateTask(self, request: pb.UpdateTaskRequest, context: grpc.ServicerContext) -> pb.UpdateTaskResponse:
        if request.rename_target:
            return self._renames.rename(request)
        return self._updates.update(request)

    def OperateTask(self, request: pb.OperateTaskRequest, context: grpc.ServicerContext) -> pb.OperateTaskResponse:
        return self._tasks.operate(request)

    def QueryStatus(self, request: pb.QueryStatusRequest, context: grpc.ServicerContext) -> pb.QueryStatusResponse:
        return self._status.query(request)

    def CheckTask(self, request: pb.CheckTaskRequest, context: grpc.ServicerContext) -> pb.CheckTaskResponse:
        return self._tasks.check(request)

    def ListMember(self, request: pb.ListMemberRequest, context: grpc.ServicerContext) -> pb.ListMemberResponse:
        return list_members(request, self._store.read())

    def HandleBinlog(self, request: pb.HandleBinlogRequest, context: grpc.ServicerContext) -> pb.HandleBinlogResponse:
        return self._binlog_ops.handle(request)

    def Quarantine(self, request: pb.QuarantineRequest, context: grpc.ServicerContext) -> pb.QuarantineResponse:
        return self._quarantines.operate(request)

    def PurgeRelay(self, request: pb.PurgeRelayRequest, context: grpc.ServicerContext) -> pb.PurgeRelayResponse:
        return self._relays.purge(request)

    def ShowDDLLocks(self, request: pb.ShowDDLLocksRequest, context: grpc.ServicerContext) -> pb.ShowDDLLocksResponse:
        return self._locks.show(request)

    def UnlockDDLLock(
        self, request: pb.UnlockDDLLockRequest, context: grpc.ServicerContext
    ) -> pb.UnlockDDLLockResponse:
        return self._locks.unlock(request)

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
        return self._schemas.operate(request)
