"""The texts of a transform in Python: names of modules and functions, and types of columns. Pure."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_MODULE = re.compile(rf"{_WORD}(?:\.{_WORD})*")
_FUNCTION = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TYPE = re.compile(
    r"\s*([A-Za-z]+)\s*(?:\(\s*(\d{1,5})\s*(?:,\s*(\d{1,5})\s*)?\))?\s*(NOT\s+NULL|NULL)?\s*", re.IGNORECASE
)
_PLAIN = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "smallint": "smallint",
    "int": "int",
    "bigint": "bigint",
    "double": "double",
    "date": "date",
    "datetime": "timestamp_ntz",
    "string": "string",
    "binary": "binary",
}
TYPES = "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, DOUBLE, DECIMAL(p,s), DATE, DATETIME, STRING, VARCHAR(n), BINARY"
_MOST_DIGITS = 38
_MOST_SCALE = 30
_MOST_VARCHAR = 16383


@dataclass(frozen=True, slots=True)
class OutputType:
    """``type``: Spark's name of it, as in ``decimal(12,2)``."""

    type: str
    nullable: bool


def module_name(text: str) -> str:
    """``text``, an entry of `transform-modules`. Raises ValueError."""
    if not _MODULE.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a Python module")
    top = text.partition(".")[0]
    if top in sys.stdlib_module_names or top == "shardmerge":
        raise ValueError(
            f"{text} belongs to {'this program' if top == 'shardmerge' else 'Python'}: name a module of your own"
        )
    return text


def function_name(text: str) -> tuple[str, str]:
    """(module, function) of ``module:function``. Raises ValueError."""
    module, colon, function = text.partition(":")
    if not colon or not _MODULE.fullmatch(module) or not _FUNCTION.fullmatch(function):
        raise ValueError("must be package.module:function, and the function's name must not begin with _")
    return module, function


def output_type(text: str) -> OutputType:
    """The type of a column that a function computes. Raises ValueError."""
    found = _TYPE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not one of {TYPES}, with NOT NULL if it is never NULL")
    word, first, second, null = found[1].lower(), found[2], found[3], found[4] or ""
    nullable = not null.upper().startswith("NOT")
    if word in _PLAIN and first is None:
        return OutputType(_PLAIN[word], nullable)
    if word == "decimal" and first is not None:
        digits, scale = int(first), int(second or 0)
        if not (1 <= digits <= _MOST_DIGITS and scale <= min(digits, _MOST_SCALE)):
            raise ValueError(
                f"{text}: DECIMAL takes up to {_MOST_DIGITS} digits, {_MOST_SCALE} of them after the point"
            )
        return OutputType(f"decimal({digits},{scale})", nullable)
    if word == "varchar" and first is not None and second is None:
        if not 1 <= int(first) <= _MOST_VARCHAR:
            raise ValueError(f"{text}: VARCHAR takes up to {_MOST_VARCHAR} characters")
        return OutputType(f"varchar({int(first)})", nullable)
    raise ValueError(f"{text!r} is not one of {TYPES}, with NOT NULL if it is never NULL")
