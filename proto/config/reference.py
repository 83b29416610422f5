"""docs/configuration.md: every key of every file, made from the models.

``python -m proto.config.reference`` writes the page and the JSON Schemas beside it; a test fails when they are not
what the models say.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proto.config import amounts
from proto.config.check import MODELS, Kind
from proto.config.key import bare, default_text, fields_of, inner_model, key_of
from proto.config.schema import schema_text

PAGE = "configuration.md"
_HEAD = Path(__file__).with_suffix(".md")
_FILES = {
    Kind.TASK: "Task file",
    Kind.SOURCE: "Source file",
    Kind.MASTER: "dm-master",
    Kind.WORKER: "dm-worker",
}


def page() -> str:
    """The whole page."""
    parts = [_HEAD.read_text(encoding="utf-8")]
    for kind, model in MODELS.items():
        parts.append(f"## {_FILES[kind]}\n\n" + _section(model, ""))
        told: set[type[BaseModel]] = set()
        for path, inner in _blocks(model, ""):
            if inner not in told:
                told.add(inner)
                parts.append(f"### {path}\n\n" + _section(inner, path))
    return "\n".join(parts)


def _blocks(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every block within a model, by its path; a list's items end in [], a named block in .<name>."""
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
    said = inspect.cleandoc(model.__doc__ or "").replace("``", "`") if path else ""
    said = " ".join(said.split())
    lines = [f"{said}\n"] if said else []
    lines += ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    for key, _, field in fields_of(model):
        lines.append(f"| `{key}` | {_type(field)} | {_default(field)} | {_meaning(field)} |")
    return "\n".join(lines) + "\n"


def _meaning(field: FieldInfo) -> str:
    said = key_of(field)
    parts = [said.meaning]
    if said.here:
        parts.append(f"*Here:* {said.here}.")
    if said.refused:
        parts.append(f"*Refused:* {said.refused}.")
    if said.live:
        parts.append("**live**")
    return _cell(" ".join(parts))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    said = key_of(field).default
    text = default_text(field)
    return _cell(said) if said else f"`{_cell(text)}`" if text else ""


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
    for kind, name in ((amounts.Duration, "duration"), (amounts.Size, "size"), (amounts.Seconds, "seconds")):
        if get_args(kind)[1] in field.metadata:
            return name
    if annotation is bool:
        return "true \\| false"
    return "number" if annotation in (int, float) else "text"


def _cell(text: str, *, escaped: bool = False) -> str:
    """Without what would end a cell of the table."""
    return text.replace("\n", " ") if escaped else text.replace("\n", " ").replace("|", "\\|")


def write(folder: Path) -> None:
    """The page and ``schema/*.json`` of a folder."""
    (folder / "schema").mkdir(exist_ok=True)
    (folder / PAGE).write_text(page(), encoding="utf-8")
    for kind in Kind:
        (folder / "schema" / f"{kind.value}.json").write_text(schema_text(kind), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "docs")
