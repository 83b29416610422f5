"""A wrong file made right, so that what its values mean together can be looked at beside what each has wrong.

A misspelt key counts as the one that it is near to; what is wrong is left out, or replaced where a file cannot do
without it. What was left out is said: nothing may be concluded from its absence.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from proto.config.finding import KeyPath, nearest
from proto.config.key import bare, field_at, fields_of, inner_model, is_model, key_of
from proto.config.model import keys_at
from proto.config.yamlfile import Document

M = TypeVar("M", bound=BaseModel)

_ROUNDS = 5
"""What is left out may uncover more; a file that takes more rounds is not judged as a whole."""


@dataclass(frozen=True, slots=True)
class Mended(Generic[M]):
    """``unsure``: the paths whose values are not the file's."""

    model: M
    unsure: frozenset[KeyPath] = frozenset()

    def is_sure(self, *paths: KeyPath) -> bool:
        """Whether all that the file says at these paths, above and below them is in the model."""
        return not any(one[: len(other)] == other or other[: len(one)] == one for one in self.unsure for other in paths)

    def left_out(self, block: str) -> frozenset[str]:
        """Names of a mapping's blocks that are in the file, but not in the model."""
        return frozenset(str(path[1]) for path in self.unsure if len(path) == 2 and path[0] == block)


def mended(document: Document, model: type[M]) -> Mended[M] | None:
    """None when that does not make it right."""
    root = deepcopy(cast("dict[str, Any]", document.root))
    unsure: set[KeyPath] = set()
    for _ in range(_ROUNDS):
        try:
            return Mended(model.model_validate(root), frozenset(unsure))
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
    """Takes the least part of the tree out that a file can do without; its path."""
    for length in range(len(path), 0, -1):
        here = path[:length]
        around = _at(root, here[:-1])
        if isinstance(around, dict) and _is_optional(model, here):
            cast("dict[str, Any]", around).pop(str(here[-1]), None)
            return here
    around, last = _at(root, path[:-1]), path[-1]
    field = field_at(model, path)
    if isinstance(around, dict):
        cast("dict[str, Any]", around)[str(last)] = _stand_in(field, path)
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


def _stand_in(field: FieldInfo | None, path: KeyPath) -> object:
    """A value that such a field takes, and that no other in the file is like."""
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
    """The least mapping of a model."""
    if model is None:
        return None
    return {key: _stand_in(field, (*path, key)) for key, _, field in fields_of(model) if field.is_required()}


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
