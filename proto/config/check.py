"""Checks files without any server: which kind each is, everything that is wrong with it, and its notes. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from proto.config.daemon import check_daemon, compose_daemon
from proto.config.daemon_model import DaemonFile, MasterFile, WorkerFile
from proto.config.finding import ConfigFinding, nearest
from proto.config.model import known_keys
from proto.config.note import notes_of
from proto.config.source import SourceModel, check_source, notes_of_source
from proto.config.task import check_file, notes_of_task
from proto.config.task_model import TaskModel
from proto.config.yamlfile import Document
from proto.errors import config


class Kind(enum.Enum):
    """What a configuration file is for."""

    TASK = "task"
    SOURCE = "source"
    MASTER = "master"
    WORKER = "worker"


MODELS: Mapping[Kind, type[BaseModel]] = {
    Kind.TASK: TaskModel,
    Kind.SOURCE: SourceModel,
    Kind.MASTER: MasterFile,
    Kind.WORKER: WorkerFile,
}

_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Note:
    """``line`` 0: of no certain line."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: note: {self.text}"


@dataclass(frozen=True, slots=True)
class Checked:
    """``kind`` None: nobody can tell. The file is right when there are no ``findings``, which are in file order."""

    file: str
    kind: Kind | None
    findings: tuple[ConfigFinding, ...]
    notes: tuple[Note, ...] = ()


def check_text(text: str, file: str, kind: Kind | None = None, environ: Mapping[str, str] | None = None) -> Checked:
    """Everything there is to say about a file. ``kind`` None: told by its keys. ``environ`` None: references to
    variables are left alone, for they are the master's."""
    document, findings = compose_daemon(text, file)
    if document is None:
        return Checked(file, kind, _ordered(findings))
    kind = kind or kind_of(document)
    if kind is None:
        finding = ConfigFinding(
            file, 1, 1, "", "cannot tell a task, source, master or worker file by its keys: say --kind"
        )
        return Checked(file, None, (finding,))
    notes: tuple[str, ...] = ()
    if kind is Kind.TASK:
        task, findings = check_file(document, environ)
        notes = () if task is None else notes_of_task(document, task)
    elif kind is Kind.SOURCE:
        source, findings = check_source(document, environ)
        notes = () if source is None else notes_of_source(document, source)
    else:
        model: type[DaemonFile] = MasterFile if kind is Kind.MASTER else WorkerFile
        _, findings = check_daemon(document, model)
    refused = {found.key for found in findings if found.spec is config.NOT_SUPPORTED}
    every = (_note(file, text) for text in notes or notes_of(document, MODELS[kind]))
    told = sorted(every, key=lambda note: note.line)
    # What a key does here is no matter where it is refused.
    return Checked(file, kind, _ordered(findings), tuple(one for one in told if one.text.split(": ")[0] not in refused))


def kind_of(document: Document) -> Kind | None:
    """The kind whose keys the file has the most of, misspelt ones counted by half; None: none, or two alike."""
    scores: dict[Kind, float] = {}
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
