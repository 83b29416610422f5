"""config, get-config: the stored files of tasks and sources, and the settings of daemons. Pure except for one read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.config import position
from shardmerge.proto.config.document.masking import masked
from shardmerge.proto.config.finding import KeyPath
from shardmerge.proto.config.stored_text import OF_SOURCE, OF_TASK, file_text, plain_text, sealed_text
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ShardmergeError

_Kind = pb.GetConfigRequest
_OF_FILES = (_Kind.KIND_TASK, _Kind.KIND_SOURCE)


@dataclass(frozen=True, slots=True)
class ConfigCommand:
    """``socket``: the address of this master at which it returns secrets, "" for none."""

    store: Store
    socket: str = ""

    def get(self, request: pb.GetConfigRequest, peer: str, *, private: bool) -> pb.GetConfigResponse:
        """``private``: whether no third party can read the answer to ``peer``. Raises what :func:`stored` raises, and
        SECRETS_REFUSED."""
        if request.with_secrets and request.kind in _OF_FILES and not request.names_only and not private:
            socket = self.socket or "unix:PATH (master-socket of dm-master)"
            raise errors.master.SECRETS_REFUSED(peer=peer, socket=socket)
        return stored(request, self.store.read())


def stored(request: pb.GetConfigRequest, state: State) -> pb.GetConfigResponse:
    """The configurations that ``request`` names, or all of its kind.

    Raises BAD_REQUEST, TASK_UNKNOWN, SOURCE_UNKNOWN, MASTER_UNKNOWN, WORKER_UNKNOWN, SECRET_UNREADABLE,
    SECRET_OF_ANOTHER_SERVER, SECRET_KEY_MISSING, and CONFIG_NOT_KEPT for a record by a version that did not keep the
    file.
    """
    texts, unknown = _of_kind(request.kind, state)
    for name in request.names:
        if name not in texts:
            raise unknown(name)
    answer = pb.GetConfigResponse(result=True)
    for name in dict.fromkeys(request.names) or sorted(texts):
        answer.configs.append(pb.StoredConfig(name=name) if request.names_only else _one(name, texts, request, state))
    return answer


def _one(name: str, texts: Mapping[str, str], request: pb.GetConfigRequest, state: State) -> pb.StoredConfig:
    text = texts[name]
    if not text:
        raise errors.master.CONFIG_NOT_KEPT(kind=_Kind.Kind.Name(request.kind).removeprefix("KIND_").lower(), name=name)
    if request.kind not in _OF_FILES:
        return pb.StoredConfig(name=name, cfg=text)
    path = _path(request.kind)
    file = file_text(text, path, name)
    found = pb.StoredConfig(name=name, cfg=plain_text(text, path, name) if request.with_secrets else masked(file))
    if name in request.compared:
        found.same = _same(text, request.compared[name], path, name)
    if request.kind == _Kind.KIND_TASK:
        found.subtasks.extend(_subtasks(name, file, state))
    return found


def _path(kind: pb.GetConfigRequest.Kind) -> KeyPath:
    return OF_TASK if kind == _Kind.KIND_TASK else OF_SOURCE


def _same(stored: str, sent: str, path: KeyPath, name: str) -> bool:
    """Whether a file equals the stored one, in whatever form either holds its secrets."""
    return plain_text(stored, path, name) == plain_text(sealed_text(sent, path), path, name)


def _of_kind(kind: pb.GetConfigRequest.Kind, state: State) -> tuple[dict[str, str], Callable[[str], ShardmergeError]]:
    """Texts by name, and the error for an unknown name."""
    match kind:
        case _Kind.KIND_TASK:
            tasks = {name: entry.value.yaml for name, entry in state.tasks.items()}
            return tasks, lambda name: errors.master.TASK_UNKNOWN(task=name)
        case _Kind.KIND_SOURCE:
            sources = {name: entry.value.yaml for name, entry in state.sources.items()}
            return sources, lambda name: errors.master.SOURCE_UNKNOWN(source=name)
        case _Kind.KIND_MASTER:
            masters = {name: entry.value.settings for name, entry in state.masters.items()}
            return masters, lambda name: errors.master.MASTER_UNKNOWN(master=name)
        case _Kind.KIND_WORKER:
            workers = {name: entry.value.settings for name, entry in state.workers.items()}
            return workers, lambda name: errors.master.WORKER_UNKNOWN(worker=name)
        case _:
            raise errors.master.BAD_REQUEST(reason="config: of a task, a source, a master or a worker?")


def _subtasks(task: str, text: str, state: State) -> list[pb.StoredSubTask]:
    """The task's state at each of its sources; a start and an end only where they differ from the file."""
    of_file = {one.source_id: one for one in parse_task(text, task, None).to_subtasks()}
    found: list[pb.StoredSubTask] = []
    for source in state.sources_of(task):
        record = state.subtasks[task, source].value
        file_subtask = of_file.get(source, config.SubTaskConfig())
        start, stop = position.shown_start(record.config.start_at), position.shown(record.config.stop_at)
        found.append(
            pb.StoredSubTask(
                source=source,
                expected=record.expected,
                start_time=start if start != position.shown_start(file_subtask.start_at) else "",
                stop_at=stop if stop != position.shown(file_subtask.stop_at) else "",
                binlog_ops=len(record.binlog_ops),
            )
        )
    return found
