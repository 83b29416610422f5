"""Repairs an invalid file, so that its values can also be checked together.

A misspelt key counts as the most similar one; an invalid value is left out, or replaced if the file needs one. The
result lists what was left out: its absence must not lead to findings.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from shardmerge.proto.config.document.file_model import keys_at
from shardmerge.proto.config.document.yaml_file import Document
from shardmerge.proto.config.finding import KeyPath, nearest
from shardmerge.proto.config.key import bare, field_at, fields_of, inner_model, is_model, key_of

M = TypeVar("M", bound=BaseModel)

_ROUNDS = 5
"""Leaving a value out may uncover more errors; a file that needs more rounds is not checked as a whole."""


@dataclass(frozen=True, slots=True)
class RepairedModel(Generic[M]):
    """The repaired model. ``unsure``: the paths whose values are not the file's."""

    model: M
    unsure: frozenset[KeyPath] = frozenset()

    def is_sure(self, *paths: KeyPath) -> bool:
        """Whether the model has everything of the file at these paths, above and below them."""
        return not any(one[: len(other)] == other or other[: len(one)] == one for one in self.unsure for other in paths)

    def left_out(self, block: str) -> frozenset[str]:
        """Names of a mapping's blocks that are in the file, but not in the model."""
        return frozenset(str(path[1]) for path in self.unsure if len(path) == 2 and path[0] == block)


def repaired(document: Document, model: type[M]) -> RepairedModel[M] | None:
    """The repaired file; None if it cannot be repaired."""
    root = deepcopy(cast("dict[str, Any]", document.root))
    unsure: set[KeyPath] = set()
    for _ in range(_ROUNDS):
        try:
            return RepairedModel(model.model_validate(root), frozenset(unsure))
        except ValidationError as error:
            for item in error.errors(include_url=False):
                path: KeyPath = tuple(part for part in item["loc"] if part != "[key]")
                if item["type"] == "extra_forbidden":
                    _respell(root, model, path)
                elif not path:
                    return None
                else:
                    unsure.add(_leave_out(root, model, path))
    return None


def _respell(root: dict[str, Any], model: type[BaseModel], path: KeyPath) -> None:
    around = _at(root, path[:-1])
    key = str(path[-1])
    if not isinstance(around, dict) or key not in around:
        return
    value = cast("dict[str, Any]", around).pop(key)
    near = nearest(key, keys_at(model, path[:-1]))
    if near:
        cast("dict[str, Any]", around).setdefault(near, value)


def _leave_out(root: dict[str, Any], model: type[BaseModel], path: KeyPath) -> KeyPath:
    """Remove the smallest optional part of the tree; returns its path."""
    for length in range(len(path), 0, -1):
        here = path[:length]
        around = _at(root, here[:-1])
        if isinstance(around, dict) and _is_optional(model, here):
            cast("dict[str, Any]", around).pop(str(here[-1]), None)
            return here
    around, last = _at(root, path[:-1]), path[-1]
    field = field_at(model, path)
    if isinstance(around, dict):
        cast("dict[str, Any]", around)[str(last)] = _placeholder(field, path)
    elif isinstance(around, list) and isinstance(last, int) and last < len(cast("list[Any]", around)):
        listed = field_at(model, path[:-1])
        around[last] = _least(inner_model(listed.annotation) if listed else None, path)
    return path


def _is_optional(model: type[BaseModel], path: KeyPath) -> bool:
    field = field_at(model, path)
    if field is not None:
        return not field.is_required()
    # No field of a model: a named block, a variable of a session, or an item of a list.
    return isinstance(path[-1], str)


def _placeholder(field: FieldInfo | None, path: KeyPath) -> object:
    """A value that such a field accepts, and that differs from all others in the file."""
    if field is None:
        return None
    annotation: Any = bare(field.annotation)
    if get_origin(annotation) is tuple:
        return [_least(inner_model(annotation), (*path, 0))]
    if is_model(annotation):
        return _least(annotation, path)
    if get_origin(annotation) is Literal:
        return key_of(field).sample or get_args(annotation)[0]
    return "1" if annotation in (int, float) else "stand-in-" + "-".join(str(part) for part in path[1:2])


def _least(model: type[BaseModel] | None, path: KeyPath) -> object:
    """The smallest valid mapping of a model."""
    if model is None:
        return None
    return {key: _placeholder(field, (*path, key)) for key, _, field in fields_of(model) if field.is_required()}


def _at(root: object, path: KeyPath) -> object:
    here: Any = root
    for part in path:
        if isinstance(here, dict):
            here = cast("dict[str | int, Any]", here).get(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(cast("list[Any]", here)):
            here = cast("list[Any]", here)[part]
        else:
            return None
    return here
