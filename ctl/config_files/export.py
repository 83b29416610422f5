"""The directory of `config export` and `config import`: DM's layout, and one file of our own.

    sources/<source id>.yaml    the source file as it was sent
    tasks/<task>.yaml           the task file as it was sent
    subtasks.json               where each task runs, and settings that are not in its file

DM's own exports (docs: "Export and Import Data Sources and Task Configuration of Clusters") have no ``subtasks.json``:
then each task runs on all of its sources. Their ``relay_workers.json`` is not needed here: the relay log is always on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shardmerge.ctl.files import read_text
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.config.source import parse_source
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.files.durable_file import private_descriptor, private_folder

SOURCES, TASKS, SUBTASKS = "sources", "tasks", "subtasks.json"
_SUFFIXES = (".yaml", ".yml")
_NAME_BYTES = 255  # of one file's name, on every usual file system
_FORMAT = 1


class ExportedSubTask(BaseModel):
    """A task's state at a source. ``start_time``, ``stop_at``: set outside the file, "" if the file's value holds."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=lambda name: name.replace("_", "-"))

    stage: Literal["Running", "Paused"] = "Running"
    start_time: str = ""
    stop_at: str = ""


class _Index(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Annotated[int, Field(ge=1, le=_FORMAT)] = _FORMAT
    tasks: dict[str, dict[str, ExportedSubTask]] = Field(default_factory=dict[str, dict[str, ExportedSubTask]])


@dataclass(frozen=True, slots=True)
class ExportedSourceFile:
    path: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class ExportedTaskFile:
    """``subtasks``: by source, in the order of the file."""

    path: str
    text: str
    name: str
    subtasks: Mapping[str, ExportedSubTask]


@dataclass(frozen=True, slots=True)
class Directory:
    """What is to be imported; every file is valid by itself, passwords of the environment apart."""

    sources: tuple[ExportedSourceFile, ...]
    tasks: tuple[ExportedTaskFile, ...]


def write(path: str, sources: Sequence[pb.StoredConfig], tasks: Sequence[pb.StoredConfig]) -> None:
    """Make the directory, all or nothing; only its owner may read it. Raises EXPORT_INTO.

    The same configurations give the same bytes.
    """
    wanted = Path(path)
    try:
        if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
            raise errors.ctl.EXPORT_INTO(path=path, reason="something is there already")
        private_folder(wanted.absolute().parent)
        made = Path(tempfile.mkdtemp(prefix=f".{wanted.name[:100]}.", dir=wanted.absolute().parent))  # mode 0700
        try:
            _fill(made, sources, tasks)
            made.rename(wanted)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise errors.ctl.EXPORT_INTO(path=path, reason=(error.strerror or str(error)).lower()) from error


def _fill(directory: Path, sources: Sequence[pb.StoredConfig], tasks: Sequence[pb.StoredConfig]) -> None:
    for folder, configs in ((SOURCES, sources), (TASKS, tasks)):
        private_folder(directory / folder)
        for one in configs:
            write_private(directory / folder / file_name(one.name), one.cfg)
    index = _Index(tasks={task.name: {each.source: _subtask(each) for each in task.subtasks} for task in tasks})
    text = json.dumps(index.model_dump(by_alias=True), ensure_ascii=False, indent=2, sort_keys=True)
    write_private(directory / SUBTASKS, f"{text}\n")


def _subtask(stored: pb.StoredSubTask) -> ExportedSubTask:
    paused = stored.expected == common_pb2.STAGE_PAUSED
    return ExportedSubTask.model_validate(
        {"stage": "Paused" if paused else "Running", "start-time": stored.start_time, "stop-at": stored.stop_at}
    )


def file_name(name: str) -> str:
    """The name of a task's or source's file. Names of any length: a file's name is cut, and made unique."""
    plain = f"{name}{_SUFFIXES[0]}"
    if len(plain.encode()) <= _NAME_BYTES:
        return plain
    tail = f".{hashlib.sha256(name.encode()).hexdigest()[:16]}{_SUFFIXES[0]}"
    return name.encode()[: _NAME_BYTES - len(tail)].decode(errors="ignore") + tail


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, from its first byte on; it replaces an existing one. Raises
    OSError."""
    path.unlink(missing_ok=True)
    with os.fdopen(private_descriptor(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(text.encode())


def read(path: str) -> Directory:
    """Read and check all files. Raises IMPORT_FILE, FILE_NOT_FOUND, FILE_UNREADABLE and the files' own errors."""
    root = Path(path)
    if not root.is_dir():
        raise errors.ctl.FILE_NOT_FOUND(path=path, directory=Path.cwd())
    sources: dict[str, ExportedSourceFile] = {}
    for file in _files(root / SOURCES):
        text = read_text(str(file))
        source = parse_source(text, str(file), None).source_id
        if source in sources:
            raise errors.ctl.IMPORT_FILE(path=file, reason=f"source {source} is in {sources[source].path} already")
        sources[source] = ExportedSourceFile(str(file), text, source)
    index = _index(root / SUBTASKS)
    tasks: dict[str, ExportedTaskFile] = {}
    for file in _files(root / TASKS):
        text = read_text(str(file))
        parsed = parse_task(text, str(file), None)
        if parsed.name in tasks:
            raise errors.ctl.IMPORT_FILE(
                path=file, reason=f"task {parsed.name} is in {tasks[parsed.name].path} already"
            )
        subtasks = _subtasks(root / SUBTASKS, parsed.name, parsed.source_ids, index)
        tasks[parsed.name] = ExportedTaskFile(str(file), text, parsed.name, subtasks)
    for name in index.tasks if index is not None else ():
        if name not in tasks:
            raise errors.ctl.IMPORT_FILE(path=root / SUBTASKS, reason=f"there is no file of task {name}")
    if not sources and not tasks:
        raise errors.ctl.IMPORT_FILE(path=path, reason=f"no .yaml file in {SOURCES} or {TASKS} of it")
    return Directory(tuple(sources[name] for name in sorted(sources)), tuple(tasks[name] for name in sorted(tasks)))


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = sorted(folder.iterdir())
    for file in found:
        if file.suffix not in _SUFFIXES:
            raise errors.ctl.IMPORT_FILE(path=file, reason="not a .yaml file")
    return found


def _index(path: Path) -> _Index | None:
    if not path.exists():
        return None
    try:
        return _Index.model_validate_json(read_text(str(path)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise errors.ctl.IMPORT_FILE(path=path, reason=f"{where}: {first['msg']}" if where else first["msg"]) from error


def _subtasks(path: Path, task: str, sources: Sequence[str], index: _Index | None) -> dict[str, ExportedSubTask]:
    if index is None:
        return {source: ExportedSubTask() for source in sources}
    entries = index.tasks.get(task)
    if entries is None:
        raise errors.ctl.IMPORT_FILE(path=path, reason=f"there is no entry for task {task}")
    for source in entries:
        if source not in sources:
            raise errors.ctl.IMPORT_FILE(path=path, reason=f"the file of task {task} does not name source {source}")
    return {source: entries[source] for source in sources if source in entries}
