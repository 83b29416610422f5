"""Checks files without a server: the kind of each, all findings, and its notes. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from shardmerge.proto.config.daemon.daemon_file import check_daemon, compose_daemon
from shardmerge.proto.config.daemon.model import DaemonFile, MasterFile, WorkerFile
from shardmerge.proto.config.document.file_model import known_keys
from shardmerge.proto.config.document.notes import notes_of
from shardmerge.proto.config.document.yaml_file import Document
from shardmerge.proto.config.finding import ConfigFinding, nearest
from shardmerge.proto.config.source import SourceModel, check_source, notes_of_source
from shardmerge.proto.config.task.model import TaskModel
from shardmerge.proto.config.task.task_file import check_file, notes_of_task, start_notes
from shardmerge.proto.errors import config


class FileKind(enum.Enum):
    """The kind of a configuration file."""

    TASK = "task"
    SOURCE = "source"
    MASTER = "master"
    WORKER = "worker"


MODELS: Mapping[FileKind, type[BaseModel]] = {
    FileKind.TASK: TaskModel,
    FileKind.SOURCE: SourceModel,
    FileKind.MASTER: MasterFile,
    FileKind.WORKER: WorkerFile,
}

_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Note:
    """A note on a file. ``line`` 0: it has no line."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: note: {self.text}"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result for a file. ``kind`` None: unknown. The file is correct if there are no ``findings``, which are in
    file order."""

    file: str
    kind: FileKind | None
    findings: tuple[ConfigFinding, ...]
    notes: tuple[Note, ...] = ()


def check_text(text: str, file: str, kind: FileKind | None = None, environ: Mapping[str, str] | None = None) -> Checked:
    """Check a file completely. ``kind`` None: recognised by its keys. ``environ`` None: references to variables are not
    resolved, as they are the master's."""
    document, findings = compose_daemon(text, file)
    if document is None:
        return Checked(file, kind, _ordered(findings))
    kind = kind or kind_of(document)
    if kind is None:
        finding = ConfigFinding(
            file, 1, 1, "", "its keys are not those of a task, source, master or worker file: give --kind"
        )
        return Checked(file, None, (finding,))
    notes: tuple[str, ...] = ()
    if kind is FileKind.TASK:
        task, findings = check_file(document, environ)
        if task is not None:
            notes = (*notes_of_task(document, task), *(note for _, note in start_notes(document, task)))
    elif kind is FileKind.SOURCE:
        source, findings = check_source(document, environ)
        notes = () if source is None else notes_of_source(document, source)
    else:
        model: type[DaemonFile] = MasterFile if kind is FileKind.MASTER else WorkerFile
        _, findings = check_daemon(document, model)
    refused = {found.key for found in findings if found.spec is config.NOT_SUPPORTED}
    every = (_note(file, text) for text in notes or notes_of(document, MODELS[kind]))
    ordered = sorted(every, key=lambda note: note.line)
    # The effect of a refused key does not matter.
    return Checked(
        file, kind, _ordered(findings), tuple(one for one in ordered if one.text.split(": ")[0] not in refused)
    )


def kind_of(document: Document) -> FileKind | None:
    """The kind with the most keys in the file, misspelt ones count half; None: no key, or a tie."""
    scores: dict[FileKind, float] = {}
    for kind, model in MODELS.items():
        known = known_keys(model)
        near = sum(1 for key in document.root if key not in known and nearest(key, known))
        scores[kind] = sum(1 for key in document.root if key in known) + near / 2
    best = max(scores.values())
    leading = [kind for kind, score in scores.items() if score == best]
    return leading[0] if best > 0 and len(leading) == 1 else None


def _ordered(findings: list[ConfigFinding]) -> tuple[ConfigFinding, ...]:
    return tuple(
        sorted(dict.fromkeys(findings), key=lambda found: (found.line, found.column, found.key, found.message))
    )


def _note(file: str, text: str) -> Note:
    found = _LINE.fullmatch(text)
    return Note(file, int(found[1]), found[2]) if found else Note(file, 0, text)
