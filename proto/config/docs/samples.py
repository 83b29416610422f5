"""Commented sample files, generated from the models: every key that a first file needs, with its meaning."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from shardmerge.proto.config.daemon.model import MasterFile, WorkerFile
from shardmerge.proto.config.key import bare, fields_of, inner_model, key_of
from shardmerge.proto.config.source import SourceModel
from shardmerge.proto.config.task.model import TaskModel

_WIDTH = 38
_HEADS: dict[type[BaseModel], str] = {
    MasterFile: "# dm-master. Every key is also a flag, which wins: --master-addr, --etcd, …\n",
    WorkerFile: "# dm-worker. Every key except spark is also a flag, which wins: --worker-addr, --etcd, …\n",
    SourceModel: "# A source: one MySQL or MariaDB server whose tables are merged.\n"
    "# Create it with:  dmctl operate-source create <this file>\n",
    TaskModel: "# A task: which tables of which sources become which tables of the target.\n"
    "# Check it with:  dmctl check-config <this file>;  start it with:  dmctl start-task <this file>\n",
}
_FILLED: dict[type[BaseModel], dict[str, str]] = {
    MasterFile: {"{name}": "master-1", "{address}": "127.0.0.1:8261"},
    WorkerFile: {"{name}": "worker-1", "{address}": "127.0.0.1:8262"},
}
_NAMES = {
    "routes": "orders",
    "column-mappings": "ids-1",
    "block-allow-list": "shards",
    "mydumpers": "global",
    "syncers": "global",
}
"""Named blocks of the task's sample: the names that its instance refers to."""


def sample_of(model: type[BaseModel]) -> str:
    """The text of a sample file that ``model`` accepts."""
    lines = list(_block(model, ""))
    text = _HEADS[model] + "\n".join(lines) + "\n"
    for placeholder, value in _FILLED.get(model, {}).items():
        text = text.replace(placeholder, value)
    return "\n".join(_aligned(line) for line in text.splitlines()) + "\n"


def _block(model: type[BaseModel], indent: str) -> Iterator[str]:
    for key, _, field in fields_of(model):
        key_info = key_of(field)
        inner = inner_model(field.annotation)
        if inner is None:
            if key_info.sample:
                yield f"{indent}{key}: {key_info.sample}\t# {key_info.meaning}"
            continue
        lines = list(_block(inner, indent + ("    " if key in _NAMES or _is_list(field.annotation) else "  ")))
        needed = field.is_required() or key in _NAMES or _own(inner)
        if not lines or not needed or (indent and key not in {"do-tables"} and not field.is_required()):
            continue
        yield f"{indent}{key}:\t# {key_info.meaning}"
        if key in _NAMES:
            yield f"{indent}  {_NAMES[key]}:"
        elif _is_list(field.annotation):
            lines[0] = lines[0].replace("    ", "  - ", 1) if not indent else indent + "  - " + lines[0].lstrip()
        yield from lines


def _own(model: type[BaseModel]) -> bool:
    return model.__name__ in {"Snapshot", "Load", "Replicate", "Purge"}


def _is_list(annotation: object) -> bool:
    return str(bare(annotation)).startswith("tuple")


def _aligned(line: str) -> str:
    """The line with its comment in a column of its own, or above the key if the line would be too long."""
    code, tab, comment = line.partition("\t")
    if not tab:
        return line
    if max(len(code), _WIDTH) + len(comment) + 2 <= 118:
        return f"{code:{_WIDTH}}{'' if len(code) < _WIDTH else '  '}{comment}"
    indent = code[: len(code) - len(code.lstrip())]
    return "\n".join([*_folded(comment, indent), code])


def _folded(comment: str, indent: str) -> Iterator[str]:
    line = ""
    for word in comment.removeprefix("# ").split():
        if line and len(indent) + len(line) + len(word) > 114:
            yield f"{indent}# {line}"
            line = ""
        line = f"{line} {word}".strip()
    yield f"{indent}# {line}"
