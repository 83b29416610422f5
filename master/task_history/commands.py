"""Commands as events: by their verb and the names of what they are about. Pure.

Never part of an event: contents of files, statements, row values (the keys of held rows are such), passwords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message

from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.proto.task_history.event import Event, HistoryEntryKind

_MOST_NAMED = 5
_NOT_DONE = (errors.master.NOT_LEADER, errors.master.NO_LEADER, errors.master.CALL_TOO_MANY)
"""The caller asks the leader, or again."""
_OPERATIONS = {
    pb.OperateTaskRequest.OP_STOP: "stop-task",
    pb.OperateTaskRequest.OP_PAUSE: "pause-task",
    pb.OperateTaskRequest.OP_RESUME: "resume-task",
}
_RELAY = {
    pb.OperateRelayRequest.OP_START: "start-relay",
    pb.OperateRelayRequest.OP_STOP: "stop-relay",
    pb.OperateRelayRequest.OP_PAUSE: "pause-relay",
    pb.OperateRelayRequest.OP_RESUME: "resume-relay",
}
_BINLOG = {
    pb.HandleBinlogRequest.OP_SKIP: "skip",
    pb.HandleBinlogRequest.OP_REPLACE: "replace",
    pb.HandleBinlogRequest.OP_INJECT: "inject",
    pb.HandleBinlogRequest.OP_REVERT: "revert",
}
_QUARANTINE = {worker_pb2.QUARANTINE_OP_RETRY: "retry", worker_pb2.QUARANTINE_OP_DROP: "drop"}
_SCHEMA = {worker_pb2.SCHEMA_OP_UPDATE: "update", worker_pb2.SCHEMA_OP_DELETE: "delete"}
_SOURCE = {pb.OperateSourceRequest.OP_STOP: "stop", pb.OperateSourceRequest.OP_UPDATE: "update"}

TasksOf = Callable[[str], Sequence[str]]
"""The tasks on a source."""


class Result(Protocol):
    """The answer to a command."""

    @property
    def result(self) -> bool: ...
    @property
    def msg(self) -> str: ...


Answer = Result | ShardmergeError
"""A command is answered, or fails with an error."""


@dataclass(frozen=True, slots=True)
class _Command:
    """``of_source``: its tasks are those of its sources."""

    text: str
    task: str = ""
    sources: tuple[str, ...] = ()
    of_source: bool = False


def command_events(
    request: Message, answer: Answer, actor: str, at: float, known: frozenset[str], tasks_of: TasksOf
) -> list[Event]:
    """An event for each task that the command concerns; none for a question, or for a command that another master is
    to do. ``known``: the tasks that exist. A failed command about another task is no event: a history begins with a
    task, not with a misspelled name. Raises the errors of a task file that cannot be read."""
    if isinstance(answer, ShardmergeError) and answer.spec in _NOT_DONE:
        return []
    command = _command(request, answer)
    if command is None:
        return []
    error = answer if isinstance(answer, ShardmergeError) else None
    if isinstance(answer, ShardmergeError):
        # An error about a file may quote what it contains.
        failed, message = True, "" if answer.spec.error_class == "config" else answer.message
    else:
        failed = not answer.result
        message = answer.msg.partition("\n")[0] if failed else ""
    if command.of_source:
        tasks = {task: [each for each in command.sources if task in tasks_of(each)] for task in _all(command, tasks_of)}
    else:
        tasks = {command.task: list(command.sources)}
    return [
        Event(
            task,
            HistoryEntryKind.COMMAND,
            at,
            command.text,
            tuple(sources),
            code=0 if error is None else error.code,
            name="" if error is None else error.spec.name,
            message=message,
            actor=actor,
            failed=failed,
        )
        for task, sources in sorted(tasks.items())
        if task and (task in known or not failed)
    ]


def _all(command: _Command, tasks_of: TasksOf) -> set[str]:
    return {task for source in command.sources for task in tasks_of(source)}


def _command(request: Message, answer: Answer) -> _Command | None:
    """None: the request changes nothing."""
    match request:
        case pb.StartTaskRequest() if not request.check_only:
            options = _options(("--remove-meta", request.remove_meta), ("--paused", request.paused))
            return _Command(f"start-task{options}", _task_of(request.file), tuple(request.sources))
        case pb.UpdateTaskRequest() if not request.dry_run:
            options = _options(("--rename-target", request.rename_target), ("--move-tables", request.move_tables))
            return _Command(f"update-task{options}", _task_of(request.file))
        case pb.OperateTaskRequest():
            return _operation(request)
        case pb.HandleBinlogRequest() if request.op in _BINLOG:
            place = f" {request.binlog_pos}" if request.binlog_pos else ""
            return _Command(f"binlog {_BINLOG[request.op]}{place}", request.task, tuple(request.sources))
        case pb.QuarantineRequest() if request.op in _QUARANTINE:
            text = f"quarantine {_QUARANTINE[request.op]} {request.table}".rstrip()
            return _Command(text + (", one key" if request.key else ""), request.task, tuple(request.sources))
        case pb.OperateSchemaRequest() if request.op in _SCHEMA:
            text = f"binlog-schema {_SCHEMA[request.op]} {request.database}.{request.table}"
            return _Command(text, request.task, tuple(request.sources))
        case pb.UnlockDDLLockRequest():
            return _unlock(request)
        case pb.TransferSourceRequest():
            text = f"transfer-source {request.source} to worker {request.worker}"
            return _Command(text, sources=(request.source,), of_source=True)
        case pb.OperateRelayRequest() if request.op in _RELAY:
            return _of_sources(_RELAY[request.op], request.sources)
        case pb.PurgeRelayRequest():
            return _of_sources("purge-relay", request.sources, f" before {request.filename}")
        case pb.OperateSourceRequest() if request.op in _SOURCE and not request.dry_run:
            sources = [one.source for one in getattr(answer, "sources", ())] or list(request.source_ids)
            keys = sorted({one.key for one in getattr(answer, "changes", ())})
            return _of_sources(
                f"operate-source {_SOURCE[request.op]}", sources, f": {listed(keys, _MOST_NAMED)}" if keys else ""
            )
        case _:
            return None


def _operation(request: pb.OperateTaskRequest) -> _Command | None:
    text = _OPERATIONS.get(request.op)
    if text is None:
        return None
    text += _options(("--remove-meta", request.remove_meta))
    task = request.name or (_task_of(request.file) if request.file.content else "")
    return _Command(text, task, tuple(request.sources), of_source=not task)


def _unlock(request: pb.UnlockDDLLockRequest) -> _Command:
    task, _, target = request.id.partition("-`")
    text = f"shard-ddl-lock unlock `{target}"
    text += f" --owner {request.replace_owner}" if request.replace_owner else ""
    text += _options(("--force-remove", request.force_remove))
    text += f" --action {request.action}" if request.action else ""
    return _Command(text, task, tuple(request.sources))


def _of_sources(verb: str, sources: Iterable[str], more: str = "") -> _Command:
    names = tuple(dict.fromkeys(sources))
    return _Command(f"{verb} {listed(names, _MOST_NAMED)}{more}", sources=names, of_source=True)


def _options(*options: tuple[str, bool]) -> str:
    return "".join(f" {name}" for name, is_set in options if is_set)


def _task_of(file: pb.ConfigFile) -> str:
    return parse_task(file.content, file.name).name
