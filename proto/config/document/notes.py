"""Notes and refusals for the keys in a file, from the models' :class:`shardmerge.proto.config.key.Key`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from shardmerge.proto.config.document.yaml_file import Document
from shardmerge.proto.config.finding import ConfigFinding, dotted
from shardmerge.proto.config.key import field_at, fields_of, key_of
from shardmerge.proto.errors import config


def notes_of(document: Document, model: type[BaseModel]) -> tuple[str, ...]:
    """``line N: key: its effect here`` for every key that has another effect here, in file order."""
    found: list[tuple[int, str]] = []
    for path in document.keys:
        field = field_at(model, path)
        here = "" if field is None else key_of(field).effect
        if here:
            line = document.line(path)
            found.append((line, f"line {line}: {dotted(path)}: {here}" if line else f"{dotted(path)}: {here}"))
    return tuple(text for _, text in sorted(found))


def refusals(document: Document, model: BaseModel) -> Iterator[ConfigFinding]:
    """A finding for every key that is refused with any value except its default."""
    for path in document.keys:
        field = field_at(type(model), path)
        reason = "" if field is None else key_of(field).refused
        if (
            reason
            and field is not None
            and _value(model, path) not in (field.get_default(call_default_factory=True), None)
        ):
            yield document.finding(path, reason, at_key=True, spec=config.NOT_SUPPORTED)


def _value(model: BaseModel, path: tuple[str | int, ...]) -> object:
    """The model's value at a path of its file; None if the model has no such path."""
    here: object = model
    for part in path:
        if isinstance(here, BaseModel):
            name = next((name for key, name, _ in fields_of(type(here)) if key == part), "")
            here = getattr(here, name, None)
        elif isinstance(here, dict):
            here = here.get(part)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        elif isinstance(here, tuple) and isinstance(part, int) and part < len(here):  # pyright: ignore[reportUnknownArgumentType]
            here = here[part]  # pyright: ignore[reportUnknownVariableType]
        else:
            return None
    return here  # pyright: ignore[reportUnknownVariableType]
