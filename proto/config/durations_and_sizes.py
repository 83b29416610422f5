"""Durations and sizes in DM's form; the form is checked even if the value has no effect here."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:[kmgtp]i?b?|b)?", re.ASCII | re.IGNORECASE)
_LONGEST = 40
"""Most characters; a longer text is invalid and not parsed."""


def seconds_of(text: str) -> float:
    """Seconds of a Go duration (https://pkg.go.dev/time#ParseDuration): ``10m``, ``1h30m``, ``500ms``, ``0``.

    Raises ValueError.
    """
    if text == "0":
        return 0.0
    parts = list(_PART.finditer(text)) if len(text) <= _LONGEST else []
    if not parts or "".join(part.group() for part in parts) != text:
        raise ValueError("must be a duration such as 30s, 10m or 1h30m")
    return sum(float(part.group(1)) * _UNIT_SECONDS[part.group(2)] for part in parts)


def _duration(text: str) -> str:
    if text:
        seconds_of(text)
    return text


def _size(text: str) -> str:
    if text and (len(text) > _LONGEST or not _SIZE.fullmatch(text)):
        raise ValueError("must be a size such as 64, 500MiB or 2GB")
    return text


def _whole_seconds(value: object) -> object:
    """A duration as a number of seconds; a plain number stays as it is."""
    if not isinstance(value, str) or (value.isascii() and value.lstrip("+-").isdecimal()):
        return value
    try:
        seconds = seconds_of(value)
    except ValueError:
        raise ValueError("must be a number of seconds or a duration such as 30s or 10m") from None
    if seconds != int(seconds):
        raise ValueError("must be whole seconds")
    return int(seconds)


_TIME = r"((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+"
_DURATION = WithJsonSchema(
    {"anyOf": [{"const": 0}, {"type": "string", "pattern": f"^(0|{_TIME})?$", "maxLength": _LONGEST}]}
)
_SIZES = WithJsonSchema(
    {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": r"^(\d+(\.\d+)? ?([kKmMgGtTpP][iI]?[bB]?|[bB])?)?$", "maxLength": _LONGEST},
        ]
    }
)
_SECONDS = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
            {"type": "string", "pattern": rf"^(\+?\d+|0|{_TIME})$"},
        ]
    }
)

Duration = Annotated[str, AfterValidator(_duration), _DURATION]
"""The text of a duration, "" for none."""
Size = Annotated[str, AfterValidator(_size), _SIZES]
"""The text of a number of bytes (units of Docker's go-units, or none), "" for none."""
Seconds = Annotated[int, BeforeValidator(_whole_seconds), Field(ge=1, le=2**31 - 1), _SECONDS]
"""Seconds, written as a whole number or as a duration."""
