"""What a key of a configuration file means: said once, at the model's field, and read by everything else.

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
    """Stands in the field's ``Annotated``.

    ``meaning``: one sentence. ``here``: for a key of DM that does something else, or nothing, here: what; becomes a
    note when a file holds the key. ``refused``: why any value but the default is refused. ``default``: the default in
    words, where the field's own value does not tell. ``live``: `update-task` may change it while the task runs.
    ``sample``: the value that the commented sample shows; "" leaves the key out of it.
    """

    meaning: str
    here: str = ""
    refused: str = ""
    default: str = ""
    live: bool = False
    sample: str = ""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core)
        said = [self.meaning, self.here and f"Here: {self.here}.", self.refused and f"Refused: {self.refused}."]
        schema["description"] = " ".join(part for part in said if part)
        if self.here.startswith("no effect") or self.refused:
            schema["deprecated"] = True
        return schema


_UNSAID = Key("")


def key_of(field: FieldInfo) -> Key:
    """What a field's annotation says of it."""
    return next((part for part in field.metadata if isinstance(part, Key)), _UNSAID)


def fields_of(model: type[BaseModel]) -> Iterator[tuple[str, str, FieldInfo]]:
    """(key in the file, attribute, field) of a model, in the order of the model."""
    for name, field in model.model_fields.items():
        yield field.alias or name, name, field


def field_at(model: type[BaseModel], path: tuple[str | int, ...]) -> FieldInfo | None:
    """The field that a path of a file leads to; None: an item of a list, a named block, or nothing of the model."""
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
    """The model inside of a field: itself, an item of a list, or a named block; None for a plain value."""
    here = bare(annotation)
    if get_origin(here) in (dict, tuple):
        here = bare(get_args(here)[1 if get_origin(here) is dict else 0])
    return here if is_model(here) else None


def bare(annotation: Any) -> Any:
    """Without Annotated and Optional."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return bare(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return bare(next(part for part in get_args(annotation) if part is not type(None)))
    return annotation


def default_text(field: FieldInfo) -> str:
    """The default as a file would have it; "" for none and for what is empty."""
    value: object = field.get_default(call_default_factory=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in cast("tuple[object, ...]", value))
    return str(value) if isinstance(value, str | int | float) else ""
