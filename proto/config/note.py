"""Notes and refusals of keys: what the models' :class:`proto.config.key.Key` says of those that a file holds."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from proto.config.finding import ConfigFinding, dotted
from proto.config.key import field_at, fields_of, key_of
from proto.config.yamlfile import Document
from proto.errors import config


def notes_of(document: Document, model: type[BaseModel]) -> tuple[str, ...]:
    """``line N: key: what it does here`` for every key that does something else here, in file order."""
    found: list[tuple[int, str]] = []
    for path in document.keys:
        field = field_at(model, path)
        here = "" if field is None else key_of(field).here
        if here:
            line = document.line(path)
            found.append((line, f"line {line}: {dotted(path)}: {here}" if line else f"{dotted(path)}: {here}"))
    return tuple(text for _, text in sorted(found))


def refusals(document: Document, model: BaseModel) -> Iterator[ConfigFinding]:
    """A finding for every key that is refused as soon as it says anything but its default."""
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
    """What the model holds at a path of its file; None when the path is none of the model's."""
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
