"""The meaning of a configuration key, written once at the model's field.

Findings, notes, the JSON Schema, the reference page and the commented samples are all made from it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True)
class Key:
    """Metadata of a field, in its ``Annotated``.

    ``meaning``: one sentence. ``effect``: of a key of DM that has another effect here, or none; a file with the key
    gets it as a note. ``refused``: why any value except the default is refused. ``default``: the default as text, if
    the field's own value does not show it. ``live``: `update-task` may change it while the task runs. ``sample``: the
    value in the commented sample; "" leaves the key out.
    """

    meaning: str
    effect: str = ""
    refused: str = ""
    default: str = ""
    live: bool = False
    sample: str = ""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core)
        parts = [self.meaning, self.effect and f"Here: {self.effect}.", self.refused and f"Refused: {self.refused}."]
        schema["description"] = " ".join(part for part in parts if part)
        if self.effect.startswith("no effect") or self.refused:
            schema["deprecated"] = True
        return schema


_NO_KEY = Key("")


def key_of(field: FieldInfo) -> Key:
    """The field's :class:`Key`, or an empty one."""
    return next((part for part in field.metadata if isinstance(part, Key)), _NO_KEY)


def fields_of(model: type[BaseModel]) -> Iterator[tuple[str, str, FieldInfo]]:
    """(key in the file, attribute, field) of a model, in the order of the model."""
    for name, field in model.model_fields.items():
        yield field.alias or name, name, field


def field_at(model: type[BaseModel], path: tuple[str | int, ...]) -> FieldInfo | None:
    """The field at a path of a file; None: an item of a list, a named block, or nothing of the model."""
    here: Any = model
    found: FieldInfo | None = None
    for part in path:
        found = None
        if is_model(here):
            found = next((field for key, _, field in fields_of(here) if key == part), None)
            here = None if found is None else bare(found.annotation)
        elif get_origin(here) is dict:
            here = bare(get_args(here)[1])
        elif get_origin(here) is tuple:
            here = bare(get_args(here)[0])
        else:
            return None
    return found


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model in a field: its type, an item of a list, or a named block; None for a plain value."""
    here = bare(annotation)
    if get_origin(here) in (dict, tuple):
        here = bare(get_args(here)[1 if get_origin(here) is dict else 0])
    return here if is_model(here) else None


def bare(annotation: Any) -> Any:
    """The annotation without Annotated and Optional."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return bare(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return bare(next(part for part in get_args(annotation) if part is not type(None)))
    return annotation


def default_text(field: FieldInfo) -> str:
    """The default as in a file; "" for none and for an empty one."""
    value: object = field.get_default(call_default_factory=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in cast("tuple[object, ...]", value))
    return str(value) if isinstance(value, str | int | float) else ""
