"""Pydantic models over :mod:`shardmerge.proto.config.document.yaml_file`: strict keys, and findings instead of
tracebacks."""

from __future__ import annotations

from typing import Annotated, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from shardmerge.proto.config.document.yaml_file import Document
from shardmerge.proto.config.finding import ConfigFinding, KeyPath, nearest
from shardmerge.proto.config.key import field_at, inner_model

M = TypeVar("M", bound=BaseModel)


def kebab(name: str) -> str:
    """The YAML key of a model's field: ``task_mode`` is ``task-mode``."""
    return name.replace("_", "-")


class FileModel(BaseModel):
    """Base of everything that is read from a file: unknown keys are errors, values never change.

    A known key with a null value (``meta:`` and nothing after it) counts as absent, as in DM.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=kebab, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        known = known_keys(cls)
        return {
            key: value
            for key, value in cast("dict[object, object]", values).items()
            if value is not None or key not in known
        }


def empty_if_null(value: object) -> object:
    return {} if value is None else value


def lowered(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


T = TypeVar("T")
OrDefaults = Annotated[T, BeforeValidator(empty_if_null)]
"""A named block whose null value means its defaults: ``global:`` and nothing after it."""

LOWERED = BeforeValidator(lowered)
"""In a field's ``Annotated``: the value is case-insensitive, as in DM."""

Port = Annotated[int, Field(ge=1, le=65535)]
UInt32 = Annotated[int, Field(ge=0, le=2**32 - 1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
NameText = Annotated[str, Field(min_length=1)]


def known_keys(model: type[BaseModel]) -> frozenset[str]:
    """The keys that ``model`` accepts."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def validate(document: Document, model: type[M]) -> tuple[M | None, list[ConfigFinding]]:
    """The model of ``document``, or None, and every problem found."""
    try:
        return model.model_validate(document.root), []
    except ValidationError as error:
        items = error.errors(include_url=False)
        # A list whose items are wrong also gets the error that it is empty.
        real = [item for item in items if item["type"] != "too_short" or not _has_inner(item, items)]
        return None, [_finding(document, model, item) for item in real]


def _has_inner(item: ErrorDetails, items: list[ErrorDetails]) -> bool:
    at = item["loc"]
    return any(len(other["loc"]) > len(at) and other["loc"][: len(at)] == at for other in items)


def _finding(document: Document, model: type[BaseModel], item: ErrorDetails) -> ConfigFinding:
    # "[key]" marks an error of a mapping's key itself; the place is that key's.
    path: KeyPath = tuple(part for part in item["loc"] if part != "[key]")
    kind = item["type"]
    if kind == "extra_forbidden":
        keys = keys_at(model, path[:-1])
        return document.finding(path, "unknown key", at_key=True, suggestion=nearest(str(path[-1]), keys))
    if kind == "missing":
        return document.finding(path, "required key is missing", at_key=True)
    return document.finding(path, _plain(item), at_key=kind in {"model_type", "dict_type"})


_MESSAGES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_parsing_size": "the number is too large",
    "int_from_float": "must be a whole number",
    "string_type": "must be one value, not a list or a mapping",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must not be empty",
    "too_short": "needs at least {min_length}",
    "string_pattern_mismatch": "has characters that are not allowed here",
    "literal_error": "must be one of {expected}",
}


def _plain(item: ErrorDetails) -> str:
    template = _MESSAGES.get(item["type"])
    if template is None:
        return item["msg"].removeprefix("Value error, ")
    return template.format_map(item.get("ctx", {}))


def keys_at(model: type[BaseModel], path: KeyPath) -> frozenset[str]:
    """The keys allowed in the mapping at ``path``."""
    here = _model_at(model, path)
    return known_keys(here) if here is not None else frozenset()


def _model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    if not path:
        return model
    for cut in (0, 1):  # the path of a block, or of one of many: its last part is a name or an index
        field = field_at(model, path[: len(path) - cut])
        if field is not None:
            return inner_model(field.annotation)
    return None
