"""`config import`: plans how to bring a directory into a cluster, and does it.

Everything that can be refused is checked before the first task is started: all files are read, nothing with other
content may exist under the same name, the sources are created (which checks them), every task's pre-checks are run. Up
to this point a refusal removes what was created. What exists already with the same file is skipped, so that an
interrupted import can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shardmerge.ctl.config_files.export import Directory, ExportedSourceFile, ExportedSubTask, ExportedTaskFile
from shardmerge.ctl.session import Session
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError

_COMMAND = "config import"


@dataclass(frozen=True, slots=True)
class Start:
    """One start-task: a task on those of its sources that begin in the same way."""

    task: ExportedTaskFile
    how: ExportedSubTask
    sources: tuple[str, ...]

    def request(self, *, check_only: bool) -> pb.StartTaskRequest:
        return pb.StartTaskRequest(
            file=pb.ConfigFile(name=self.task.path, content=self.task.text),
            sources=self.sources,
            start_time=self.how.start_time,
            stop_at=self.how.stop_at,
            paused=self.how.stage == "Paused",
            check_only=check_only,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """``existing``: what is skipped, as lines of text."""

    sources: tuple[ExportedSourceFile, ...]
    starts: tuple[Start, ...]
    existing: tuple[str, ...]


@dataclass(slots=True)
class ImportProgress:
    """What was done so far, one line each."""

    done: list[str] = field(default_factory=list[str])


def plan(directory: Directory, sources: Iterable[pb.StoredConfig], tasks: Iterable[pb.StoredConfig]) -> Plan:
    """What is left to do when ``sources`` and ``tasks`` exist. Pure. Raises IMPORT_DIFFERS, IMPORT_FILE.

    ``sources``: all that the master has; ``same`` is set for those whose stored file equals the directory's.
    """
    known = {one.name: one for one in sources}
    running = {one.name: one for one in tasks}
    there: list[str] = []
    new: list[ExportedSourceFile] = []
    for file in directory.sources:
        stored = known.get(file.source)
        if stored is None:
            new.append(file)
        elif stored.same:
            there.append(f"source {file.source}: is there already")
        else:
            raise errors.ctl.IMPORT_DIFFERS(what=f"source {file.source}", path=file.path)
    reachable = {*known, *(file.source for file in directory.sources)}
    starts: list[Start] = []
    for task in directory.tasks:
        for source in task.subtasks:
            if source not in reachable:
                raise errors.ctl.IMPORT_FILE(path=task.path, reason=f"source {source} is neither here nor there")
        starts.extend(_starts(task, running.get(task.name), there))
    return Plan(tuple(new), tuple(starts), tuple(there))


def _starts(task: ExportedTaskFile, stored: pb.StoredConfig | None, there: list[str]) -> list[Start]:
    if stored is not None and not stored.same:
        raise errors.ctl.IMPORT_DIFFERS(what=f"task {task.name}", path=task.path)
    present = {one.source: one for one in stored.subtasks} if stored is not None else {}
    groups: dict[ExportedSubTask, list[str]] = {}
    for source, how in task.subtasks.items():
        one = present.get(source)
        if one is None:
            groups.setdefault(how, []).append(source)
        elif (one.start_time, one.stop_at) != (how.start_time, how.stop_at):
            raise errors.ctl.IMPORT_DIFFERS(what=f"task {task.name} on source {source}", path=task.path)
        else:
            there.append(f"task {task.name} on source {source}: is there already")
    return [Start(task, how, tuple(sources)) for how, sources in groups.items()]


def run(session: Session, directory: Directory, progress: ImportProgress) -> None:
    """Import the directory; ``progress`` lists what was done, also when this raises.

    Raises what :func:`plan` raises, IMPORT_FAILED, and what the connection to the master raises.
    """
    wanted = _present(session, directory)
    progress.done.extend(wanted.existing)
    try:
        _create(session, wanted.sources)
        for start in wanted.starts:
            _start(session, start, check_only=True)
    except ShardmergeError as error:
        _take_back(session, wanted.sources, error)
        raise
    progress.done.extend(f"source {file.source}: created" for file in wanted.sources)
    for start in wanted.starts:
        _start(session, start, check_only=False)
        stage = "is there, paused" if start.how.stage == "Paused" else "started"
        progress.done.append(f"task {start.task.name} on {', '.join(start.sources)}: {stage}")


def _present(session: Session, directory: Directory) -> Plan:
    kinds = pb.GetConfigRequest

    def ask(kind: pb.GetConfigRequest.Kind, mine: dict[str, str]) -> list[pb.StoredConfig]:
        """All stored configurations; for ``mine`` (files by name) also whether the stored file is the same."""

        def get(names: list[str], *, names_only: bool) -> list[pb.StoredConfig]:
            request = kinds(
                kind=kind, names=names, names_only=names_only, compared={name: mine[name] for name in names}
            )
            return list(session.call(_COMMAND, lambda master: master.GetConfig, request).configs)

        every = get([], names_only=True)
        both = [one.name for one in every if one.name in mine]
        return [*(one for one in every if one.name not in mine), *(get(both, names_only=False) if both else [])]

    return plan(
        directory,
        ask(kinds.KIND_SOURCE, {file.source: file.text for file in directory.sources}),
        ask(kinds.KIND_TASK, {file.name: file.text for file in directory.tasks}),
    )


def _create(session: Session, files: tuple[ExportedSourceFile, ...]) -> None:
    if not files:
        return
    request = pb.OperateSourceRequest(
        op=pb.OperateSourceRequest.OP_CREATE,
        files=[pb.ConfigFile(name=file.path, content=file.text) for file in files],
    )
    answer = session.call(_COMMAND, lambda master: master.OperateSource, request)
    paths = {file.source: file.path for file in files}
    for part in answer.sources:
        if not part.result:
            raise _refused(paths.get(part.source, part.source), part.error.message or part.msg)


def _start(session: Session, start: Start, *, check_only: bool) -> None:
    answer = session.call(_COMMAND, lambda master: master.StartTask, start.request(check_only=check_only))
    if answer.result:
        return
    failed = [check for check in answer.check_result if check.error_msg]
    reason = f"{answer.msg}: {failed[0].name}: {failed[0].error_msg}" if failed else answer.msg
    if check_only:
        raise _refused(start.task.path, reason)
    raise errors.ctl.IMPORT_FAILED(
        path=start.task.path,
        reason=reason,
        state="What was done before is kept",
        instruction=f"Look at `dmctl query-status {start.task.name}`. The same import continues where this one ended.",
    )


def _refused(path: str, reason: str) -> ShardmergeError:
    return errors.ctl.IMPORT_FAILED(
        path=path,
        reason=reason,
        state="Nothing was started, and what was created was removed",
        instruction="Correct it (`dmctl check-task` shows more about a task) and repeat the import.",
    )


def _take_back(session: Session, files: tuple[ExportedSourceFile, ...], why: ShardmergeError) -> None:
    """Stop the sources that were created; the error names those that could not be stopped.

    All of them, whatever the answer to their creation was: a creation that failed late may be stored. A source of the
    same name that another operator has created meanwhile is recognised by its text.
    """
    if not files:
        return
    kinds = pb.GetConfigRequest
    mine = {file.source: file.text for file in files}
    try:
        names = [
            one.name
            for one in session.call(
                _COMMAND, lambda master: master.GetConfig, kinds(kind=kinds.KIND_SOURCE, names_only=True)
            ).configs
            if one.name in mine
        ]
        if not names:
            return
        request = kinds(kind=kinds.KIND_SOURCE, names=names, compared={name: mine[name] for name in names})
        there = session.call(_COMMAND, lambda master: master.GetConfig, request).configs
        stop = [one.name for one in there if one.same]
        if not stop:
            return
        taking = pb.OperateSourceRequest(op=pb.OperateSourceRequest.OP_STOP, source_ids=stop)
        left = [
            part.source
            for part in session.call(_COMMAND, lambda master: master.OperateSource, taking).sources
            if not part.result
        ]
    except ShardmergeError as error:
        left, why = list(mine), error
    if left:
        raise errors.ctl.IMPORT_FAILED(
            path=", ".join(left),
            reason=why.message,
            state="Nothing was started; these sources could not be removed",
            instruction="Look at `dmctl operate-source show`, and remove what is not wanted with operate-source stop.",
        ) from why
