"""YAML text to a plain tree that remembers where every key and value stands.

Scalars stay the text that the user wrote: the model that receives them decides what they are. So
``password: 007`` is the password "007" and ``sql_mode: ON`` the text "ON", as in Go's yaml.v2 when it
decodes into a string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from proto.config.finding import ConfigFinding, KeyPath, dotted, error_of
from proto.errors import ErrorSpec, config

Tree: TypeAlias = "str | list[Tree] | dict[str, Tree] | None"
"""None is YAML's null: ``key:`` without a value, ``~`` or ``null``."""

_MAX_NODES = 100_000
"""Bound on values after aliases are expanded; a few nested aliases would otherwise fill the memory."""

_PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands; both count from 1. Line 0: it came from the command line."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """A file that is a YAML mapping. ``keys`` and ``values`` say where each path's key and value stand."""

    file: str
    root: dict[str, Tree]
    keys: Mapping[KeyPath, Place]
    values: Mapping[KeyPath, Place]

    def finding(
        self,
        path: KeyPath,
        message: str,
        *,
        at_key: bool = False,
        suggestion: str = "",
        spec: ErrorSpec = config.INVALID,
    ) -> ConfigFinding:
        """A finding at ``path``, or at its nearest parent that is in the file."""
        places = self.keys if at_key else self.values
        known = path
        while known and known not in places:
            known = known[:-1]
        place = places.get(known, Place(1, 1))
        file = self.file if place.line else "command line"
        return ConfigFinding(file, place.line, place.column, dotted(path), message, suggestion, spec)

    def line(self, path: KeyPath) -> int:
        """The line of ``path``'s key; 0 when the file does not hold it."""
        place = self.keys.get(path)
        return place.line if place else 0

    def holds(self, path: KeyPath) -> bool:
        return path in self.values


def read(text: str, file: str) -> Document:
    """Read one YAML document whose top is a mapping; an empty file is an empty mapping.

    ``file`` is only used in messages. Raises ``config.NOT_YAML`` for what is not YAML, and
    ``config.INVALID`` for duplicate keys, aliases that hold themselves, tags and keys that are no text.
    """
    walk = _Walk(file)
    try:
        node = YAML(typ="safe", pure=True).compose(text)
        root = walk.tree(node, (), ()) if node is not None else {}
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        # Names of aliases and anchors are cut off: an unquoted password may begin with * or &.
        what = ", ".join(filter(None, (error.context, error.problem))) or "cannot be read"
        what = re.sub(r"(alias|anchor) '.*", r"\1", what)
        raise config.NOT_YAML(finding=ConfigFinding(file, line, column, "", f"not YAML: {what}")) from None
    # Beside its own errors the scanner lets out chr()'s for escapes beyond Unicode, and deep nesting
    # ends the stack. Their text may quote the file, which holds passwords: it is not passed on.
    except (YAMLError, ValueError, OverflowError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else "a character that YAML does not allow"
        raise config.NOT_YAML(finding=ConfigFinding(file, 1, 1, "", f"not YAML: {what}")) from None
    if not walk.findings and not isinstance(root, dict):
        walk.findings.append(ConfigFinding(file, 1, 1, "", "the file must be a mapping of keys to values"))
    problem = error_of(walk.findings)
    if problem is not None or not isinstance(root, dict):
        raise problem or config.INVALID(finding=ConfigFinding(file, 1, 1, "", "not a mapping"), more="")
    return Document(file, root, walk.keys, walk.values)


def read_file(path: Path) -> str:
    """The text of a configuration file; raises ``config.UNREADABLE``."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise config.UNREADABLE(file=path, reason=error.strerror or "input/output error") from error
    except UnicodeDecodeError as error:
        raise config.UNREADABLE(file=path, reason=f"byte {error.start} is not UTF-8") from error


class _Walk:
    """Turns composed nodes into a tree, noting places and problems on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[ConfigFinding] = []
        self.keys: dict[KeyPath, Place] = {}
        self.values: dict[KeyPath, Place] = {}
        self._nodes = 0

    def tree(self, node: Node, path: KeyPath, inside: tuple[int, ...]) -> Tree:
        """``inside`` holds the identities of the nodes around this one, to see an alias of itself."""
        self.values[path] = _place(node)
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            if self._nodes == _MAX_NODES + 1:
                self._add(node, path, f"more than {_MAX_NODES} values after aliases are expanded")
            return None
        if id(node) in inside:
            self._add(node, path, "the alias holds itself")
            return None
        if str(node.tag) not in _PLAIN_TAGS:
            self._add(node, path, "tags are not supported")
            return None
        inner = (*inside, id(node))
        if isinstance(node, MappingNode):
            return self._mapping(node, path, inner)
        if isinstance(node, SequenceNode):
            return [self.tree(item, (*path, index), inner) for index, item in enumerate(node.value)]
        if not isinstance(node, ScalarNode) or str(node.tag) == "tag:yaml.org,2002:null":
            return None
        return node.value

    def _mapping(self, node: MappingNode, path: KeyPath, inside: tuple[int, ...]) -> dict[str, Tree]:
        result: dict[str, Tree] = {}
        merged: list[Node] = []
        for key, value in node.value:
            if str(key.tag) == "tag:yaml.org,2002:merge":
                merged.extend(value.value if isinstance(value, SequenceNode) else [value])
                continue
            if not isinstance(key, ScalarNode):
                self._add(key, path, "a key must be text")
                continue
            here = (*path, key.value)
            if key.value in result:
                first = self.keys[here].line
                self._add(key, here, f"the key is given twice, first in line {first}")
                continue
            self.keys[here] = _place(key)
            result[key.value] = self.tree(value, here, inside)
        for source in merged:
            self._merge(source, path, inside, result)
        return result

    def _merge(self, source: Node, path: KeyPath, inside: tuple[int, ...], result: dict[str, Tree]) -> None:
        """``<<: *alias``: keys of the alias that the mapping itself does not give."""
        if not isinstance(source, MappingNode) or id(source) in inside:
            self._add(source, path, "<< needs the alias of another mapping")
            return
        apart = _Walk(self.file)
        apart._nodes = self._nodes
        extra = apart._mapping(source, path, (*inside, id(source)))
        self._nodes = apart._nodes
        self.findings.extend(apart.findings)
        for name, value in extra.items():
            if name in result:
                continue
            result[name] = value
            here = (*path, name)
            for places, found in ((self.keys, apart.keys), (self.values, apart.values)):
                places.update({at: place for at, place in found.items() if at[: len(here)] == here})

    def _add(self, node: Node, path: KeyPath, message: str) -> None:
        place = _place(node)
        self.findings.append(ConfigFinding(self.file, place.line, place.column, dotted(path), message))


def _place(node: Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)
