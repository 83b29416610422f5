"""docs/reference/configuration.md: every key of every file, generated from the models.

``python -m shardmerge.proto.config.docs.reference`` writes the page and the JSON Schemas in ``schema/`` next to it. A
test fails when the files differ from the models.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from shardmerge.proto.config import durations_and_sizes
from shardmerge.proto.config.check import MODELS, FileKind
from shardmerge.proto.config.docs.json_schema import schema_text
from shardmerge.proto.config.key import bare, default_text, fields_of, inner_model, key_of

PAGE = "configuration.md"
_HEAD = Path(__file__).with_suffix(".md")
_CODE = re.compile(r"(`[^`]*`)")
_FILES = {
    FileKind.TASK: "Task file",
    FileKind.SOURCE: "Source file",
    FileKind.MASTER: "dm-master",
    FileKind.WORKER: "dm-worker",
}


def page() -> str:
    """The whole page."""
    parts = [_HEAD.read_text(encoding="utf-8")]
    for kind, model in MODELS.items():
        parts.append(f"## {_FILES[kind]}\n\n" + _section(model, ""))
        written: set[type[BaseModel]] = set()
        for path, inner in _blocks(model, ""):
            if inner not in written:
                written.add(inner)
                parts.append(f"### {path}\n\n" + _section(inner, path))
    return "\n".join(parts)


def _blocks(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every block within a model with its path; the path of a list item ends in [], of a named block in .<name>."""
    for key, _, field in fields_of(model):
        inner = inner_model(field.annotation)
        if inner is None:
            continue
        path = f"{prefix}{key}{_holder(field)}"
        yield path, inner
        yield from _blocks(inner, f"{path}.")


def _holder(field: FieldInfo) -> str:
    origin = get_origin(bare(field.annotation))
    return ".<name>" if origin is dict else "[]" if origin is tuple else ""


def _section(model: type[BaseModel], path: str) -> str:
    meaning = inspect.cleandoc(model.__doc__ or "").replace("``", "`") if path else ""
    meaning = " ".join(meaning.split())
    lines = [f"{meaning}\n"] if meaning else []
    lines += ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    for key, _, field in fields_of(model):
        lines.append(f"| `{key}` | {_type(field)} | {_default(field)} | {_meaning(field)} |")
    return "\n".join(lines) + "\n"


def _meaning(field: FieldInfo) -> str:
    key = key_of(field)
    parts = [key.meaning]
    if key.effect:
        parts.append(f"*Here:* {key.effect}.")
    if key.refused:
        parts.append(f"*Refused:* {key.refused}.")
    if key.live:
        parts.append("**live**")
    return _cell(" ".join(parts))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    written = key_of(field).default
    text = default_text(field)
    return _cell(written) if written else _cell(f"`{text}`") if text else ""


def _type(field: FieldInfo) -> str:
    annotation: Any = bare(field.annotation)
    origin = get_origin(annotation)
    if origin is dict:
        return "named blocks" if inner_model(annotation) else "mapping"
    if origin is tuple:
        return "list of blocks" if inner_model(annotation) else "list"
    if origin is Literal:
        return _cell(" \\| ".join(f"`{word}`" for word in get_args(annotation) if word), escaped=True)
    if inner_model(annotation) is not None:
        return "block"
    for kind, name in (
        (durations_and_sizes.Duration, "duration"),
        (durations_and_sizes.Size, "size"),
        (durations_and_sizes.Seconds, "seconds"),
    ):
        if get_args(kind)[1] in field.metadata:
            return name
    if annotation is bool:
        return "true \\| false"
    return "number" if annotation in (int, float) else "text"


def _cell(text: str, *, escaped: bool = False) -> str:
    """The text without characters that end a cell of the table; ``escaped``: it has none but line ends."""
    text = text.replace("\n", " ")
    if escaped:
        return text
    return "".join(
        _code(part[1:-1]) if part.startswith("`") else part.replace("|", "\\|") for part in _CODE.split(text)
    )


def _code(text: str) -> str:
    """Code in a cell; as HTML where it has a `|`, which not every reader accepts within backticks."""
    return f"<code>{escape(text, quote=False).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def write(folder: Path) -> None:
    """Write the page and ``schema/*.json`` into a folder."""
    (folder / "schema").mkdir(exist_ok=True)
    (folder / PAGE).write_text(page(), encoding="utf-8")
    for kind in FileKind:
        (folder / "schema" / f"{kind.value}.json").write_text(schema_text(kind), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[3] / "docs/reference")
