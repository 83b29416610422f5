"""Findings: problems in a configuration file, and their places."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from shardmerge.proto.errors import ErrorSpec, ShardmergeError, config

KeyPath = tuple[str | int, ...]
"""Keys and list indexes from the top of the file, e.g. ("mysql-instances", 0, "source-id")."""

_LISTED = 10
_LONGEST_WORD = 100
_MOST_CHOICES = 200
"""Comparing takes time for each choice and each misspelt word: a suggestion must not take seconds."""


def dotted(path: KeyPath) -> str:
    """``path`` as text: ``mysql-instances[0].source-id``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def nearest(word: str, choices: Iterable[str]) -> str:
    """The choice most similar to ``word``; "" if none is similar."""
    near = sorted(choice for choice in choices if len(choice) <= _LONGEST_WORD)
    if len(word) > _LONGEST_WORD or len(near) > _MOST_CHOICES:
        return ""
    close = difflib.get_close_matches(word, near, n=1, cutoff=0.6)
    return close[0] if close else ""


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """One problem. ``line`` and ``column`` count from 1; 0 when the value came from the command line.

    ``suggestion`` is the nearest valid key or name, "" when there is none. ``spec`` is the error of the finding;
    ``error``: the error itself, if its message has other placeholders than the finding.
    Messages never hold values of secret keys.
    """

    file: str
    line: int
    column: int
    key: str
    message: str
    suggestion: str = ""
    spec: ErrorSpec = config.INVALID
    error: ShardmergeError | None = field(default=None, compare=False)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        key = f" {self.key}:" if self.key else ""
        hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{place}:{key} {self.message}{hint}"


def error_of(findings: Iterable[ConfigFinding]) -> ShardmergeError | None:
    """One error for all findings: the message is that of the first in file order, with the number of the others.

    If a file has invalid and unsupported keys, the invalid ones are reported first.
    """
    ordered = sorted(findings, key=lambda found: (found.spec.code, found.line, found.column, found.key))
    if not ordered:
        return None
    first, rest = ordered[0], ordered[1:]
    if first.error is not None:
        return first.error
    more = ""
    if rest:
        listed = "; ".join(str(finding) for finding in rest[:_LISTED])
        more = f" (and {len(rest)} more: {listed}{'; …' if len(rest) > _LISTED else ''})"
    return first.spec(finding=first, more=more)
