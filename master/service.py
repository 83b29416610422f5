"""The methods of a master: which command answers which request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

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
from shardmerge.master.leader.election import Election
from shardmerge.master.settings import MasterSettings
from shardmerge.master.store import Store
from shardmerge.master.task_history.command_log import CommandLog
from shardmerge.master.watch import MasterWatch
from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.wait import Waiter
from shardmerge.proto import diagnostics_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.diagnostics.self_report import SelfReport
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.files.local_socket import SCHEME
from shardmerge.proto.rpc.caller import is_private
from shardmerge.proto.rpc.server import Handler

SERVICE = pb.DESCRIPTOR.services_by_name["Master"]


def handlers(
    settings: MasterSettings,
    etcd: Etcd,
    store: Store,
    election: Election,
    workers: Workers,
    watch: MasterWatch,
    report: SelfReport,
    log: CommandLog,
    ending: threading.Event,
) -> dict[str, Handler]:
    """The handlers of :data:`SERVICE`. Every master answers queries; only the leader takes decisions (others answer
    NOT_LEADER). ``log``: reports the commands that change something. ``ending``: ends the waits of commands."""
    seconds = settings.rpc_timeout
    waiter = Waiter(store.read, workers, seconds, ending)
    sources = SourceCommands(store, workers, waiter, seconds)
    tasks = TaskCommands(store, workers, waiter, seconds)
    relays = RelayCommands(store, workers, waiter)
    binlog = BinlogCommand(store, workers)
    locks = DdlLockCommands(store, binlog)
    rules = RulesCommand(store, workers, seconds)
    configs = ConfigCommand(store, f"{SCHEME}{settings.socket}" if settings.socket else "")
    whys = WhyCommand(store, workers, locks)
    diagnostics = DiagnosticsCommand(settings.name, report, store, workers, etcd)
    update = UpdateCommand(store, workers, waiter, seconds)
    rename = RenameCommand(update, store, workers, waiter)

    def update_or_rename(request: pb.UpdateTaskRequest) -> pb.UpdateTaskResponse:
        return rename.rename(request) if request.rename_target else update.update(request)

    def get_config(request: pb.GetConfigRequest, context: grpc.ServicerContext) -> pb.GetConfigResponse:
        return configs.get(request, context.peer(), private=is_private(context))

    def own_diagnostics(_: diagnostics_pb2.DiagnosticsRequest) -> diagnostics_pb2.DaemonDiagnostics:
        return report.report()

    commands: dict[str, Callable[[Any], Any]] = {
        "OperateSource": sources.operate,
        "TransferSource": TransferCommand(store, workers, waiter, seconds).transfer,
        "OperateRelay": relays.operate,
        "StartTask": tasks.start,
        "UpdateTask": update_or_rename,
        "OperateTask": tasks.operate,
        "HandleBinlog": binlog.handle,
        "Quarantine": QuarantineCommand(store, workers).operate,
        "PurgeRelay": relays.purge,
        "UnlockDDLLock": locks.unlock,
        "OperateSchema": SchemaCommand(store, workers, seconds).operate,
    }
    queries: dict[str, Callable[[Any], Any]] = {
        "QueryStatus": StatusCommand(store, workers).query,
        "CheckTask": tasks.check,
        "ListMember": MembersCommand(settings.name, store, watch).list,
        "ShowDDLLocks": locks.show,
        "OperateLeader": LeaderCommand(settings.name, store, election).operate,
        "OfflineMember": lambda request: offline(request, store),
        "ExplainRules": rules.explain,
        "ShowTargets": rules.show_targets,
        "PreviewDDL": PreviewCommand(store, workers, seconds).preview,
        "History": HistoryCommand(etcd, store).query,
        "Diagnostics": own_diagnostics,
        "Diagnose": whys.diagnose,
        "Overview": whys.overview,
    }
    return {
        **{name: _logged(command, log) for name, command in commands.items()},
        **{name: _answered(query) for name, query in queries.items()},
        "GetConfig": get_config,
        "CollectDiagnostics": lambda _, context: diagnostics.collect(context.peer()),
    }


def _logged(command: Callable[[Any], Any], log: CommandLog) -> Handler:
    return lambda request, context: log.run(request, context, command)


def _answered(query: Callable[[Any], Any]) -> Handler:
    return lambda request, _: query(request)
