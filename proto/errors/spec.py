"""What an error of the catalogue is, and the exception that carries one."""

from __future__ import annotations

import enum
import string
from dataclasses import dataclass
from typing import Any


class Scope(enum.Enum):
    """Where the cause is, and where the operator should look."""

    SOURCE = 1
    TARGET = 2
    INTERNAL = 3
    CONFIG = 4


class Level(enum.Enum):
    """How severe it is: LOW needs no action now, HIGH stops data from flowing."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3


CATALOGUE: dict[int, ErrorSpec] = {}
"""Every spec by code; filled when the class modules are imported, then only read."""


_NAMES = frozenset({"task", "source", "worker", "master", "lock"})
"""Values that name something: an empty one is not known, and no text may have a gap in its place."""

_OF_MIXED_ROWS: dict[str, str] = {}
"""See :func:`copies_one_source`; filled when the class modules are imported, then only read."""


def copies_one_source(text: str, of_mixed_rows: str) -> str:
    """Register a part of workarounds with which the rows of one source are removed and copied again; return it.

    ``of_mixed_rows``: the part for a task in which these rows cannot be identified, so that the former one would be
    refused after the task was stopped. It may name {mixed_rows}, the reason, and {mixed_targets}.
    """
    for one, other in ((text, of_mixed_rows), (_capital(text), _capital(of_mixed_rows))):
        _OF_MIXED_ROWS[one] = other
    return text


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One entry: ``code`` and ``name`` never change once released.

    ``message`` and ``workaround`` hold ``{placeholders}``; calling the spec with their
    values makes the exception. ``retryable``: a later attempt without any change by the
    operator may succeed, so the worker resumes by itself with back-off.
    """

    code: int
    name: str
    error_class: str
    scope: Scope
    level: Level
    message: str
    workaround: str
    retryable: bool = False

    def __call__(self, **args: object) -> ShardmergeError:
        values = {key: str(value) for key, value in args.items()}
        return ShardmergeError(self, {key: value for key, value in values.items() if value or key not in _NAMES})

    @property
    def copies_one_source(self) -> bool:
        """Whether the workaround removes the rows of one source, and copies them again."""
        return any(text in self.workaround for text in _OF_MIXED_ROWS)

    def placeholders(self) -> frozenset[str]:
        """Names used by the message and the workaround."""
        parse = string.Formatter().parse
        return frozenset(field for text in (self.message, self.workaround) for _, field, _, _ in parse(text) if field)


def define(
    code: int,
    name: str,
    *,
    error_class: str,
    scope: Scope,
    level: Level = Level.HIGH,
    message: str,
    workaround: str,
    retryable: bool = False,
) -> ErrorSpec:
    """Register an entry; a code used twice is a programming error found at import."""
    spec = ErrorSpec(code, name, error_class, scope, level, message, workaround, retryable)
    if code in CATALOGUE:
        raise ValueError(f"error code {code} is defined twice: {CATALOGUE[code].name} and {name}")
    CATALOGUE[code] = spec
    return spec


class _Missing(dict[str, str]):
    """What the place that raised the error does not know is shown as in a command's help: the reader fills it in."""

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


class ShardmergeError(Exception):
    """An error of the catalogue with its placeholders' values. Pickles (Spark tasks raise it)."""

    def __init__(self, spec: ErrorSpec, args: dict[str, str]) -> None:
        super().__init__(spec, args)
        self.spec = spec
        self.values = args

    @property
    def code(self) -> int:
        return self.spec.code

    @property
    def message(self) -> str:
        return self.spec.message.format_map(_Missing(self.values))

    @property
    def workaround(self) -> str:
        text = self.spec.workaround
        if "mixed_rows" in self.values:
            for one, other in _OF_MIXED_ROWS.items():
                text = text.replace(one, other)
        return text.format_map(_Missing(self.values))

    def completed(self, **values: str) -> ShardmergeError:
        """The error with further placeholders' values; those that it has stay."""
        missing = {key: value for key, value in values.items() if key not in self.values}
        if not missing.keys() & self.spec.placeholders():
            return self
        error = ShardmergeError(self.spec, {**missing, **self.values})
        return error.with_traceback(self.__traceback__)

    def of_mixed_rows(self, task: str, source: str, reason: str, targets: str) -> ShardmergeError:
        """The error in a task in which the rows of the source cannot be identified in ``targets``: see
        :func:`copies_one_source`."""
        values = {"task": task, "source": source, "mixed_rows": reason, "mixed_targets": targets}
        error = ShardmergeError(self.spec, {**values, **self.values})
        return error.with_traceback(self.__traceback__)

    def __str__(self) -> str:
        return f"[{self.spec.code} {self.spec.name}] {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.spec.code, self.values))


def _rebuild(code: int, args: dict[str, str]) -> ShardmergeError:
    return ShardmergeError(CATALOGUE[code], args)
