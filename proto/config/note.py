"""Notes: keys of DM that are accepted and mean something else, or nothing, here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proto.config.finding import KeyPath, dotted
from proto.config.yamlfile import Document

ANY = "*"
"""Stands for one list index or one rule name in a note's path."""

NotePath = tuple[str, ...]


def notes_of(document: Document, catalogue: Mapping[NotePath, str]) -> tuple[str, ...]:
    """``line N: key: what it does here`` for every key of the catalogue that the file holds, in file order."""
    found: list[tuple[int, str]] = []
    for path in document.keys:
        text = _lookup(path, catalogue)
        if text:
            line = document.line(path)
            found.append((line, f"line {line}: {dotted(path)}: {text}"))
    return tuple(text for _, text in sorted(found))


def _lookup(path: KeyPath, catalogue: Mapping[NotePath, str]) -> str:
    for candidate in _candidates(path):
        if candidate in catalogue:
            return catalogue[candidate]
    return ""


def _candidates(path: KeyPath) -> Iterable[NotePath]:
    """The path itself, and with its second part generalised: indexes and rule names stand there."""
    yield tuple(str(part) for part in path)
    if len(path) > 1:
        yield (str(path[0]), ANY, *(str(part) for part in path[2:]))
