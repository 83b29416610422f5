"""The gRPC service of a master: every request to the part that answers it."""

from __future__ import annotations

import grpc

from master.binlog_ops import BinlogOps
from master.configs import Configs
from master.ddl_lock_commands import DdlLockCommands
from master.ddl_preview import DdlPreviews
from master.explain import Explanations
from master.leadership import Leaders, offline
from master.members import list_members
from master.quarantine import Quarantines
from master.relays import Relays
from master.schemas import Schemas
from master.sources import Sources
from master.status import Status
from master.store import Store
from master.tasks import Tasks
from master.transfer import Transfers
from master.update import Updates
from proto import master_pb2 as pb
from proto.master_pb2_grpc import MasterServicer
from proto.rpc import is_private

SERVICE = "shardmerge.v1.Master"


class Service(MasterServicer):
    """Questions are answered by every master, decisions by the leader (others answer NOT_LEADER)."""

    def __init__(
        self,
        store: Store,
        sources: Sources,
        tasks: Tasks,
        updates: Updates,
        status: Status,
        relays: Relays,
        locks: DdlLockCommands,
        binlog_ops: BinlogOps,
        previews: DdlPreviews,
        schemas: Schemas,
        quarantines: Quarantines,
        explanations: Explanations,
        configs: Configs,
        transfers: Transfers,
        leaders: Leaders,
    ) -> None:
        self._store = store
        self._sources = sources
        self._tasks = tasks
        self._updates = updates
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

    def PreviewDDL(self, request: pb.PreviewDDLRequest, context: grpc.ServicerContext) -> pb.PreviewDDLResponse:
        return self._previews.preview(request)

    def OperateSchema(
        self, request: pb.OperateSchemaRequest, context: grpc.ServicerContext
    ) -> pb.OperateSchemaResponse:
        return self._schemas.operate(request)
