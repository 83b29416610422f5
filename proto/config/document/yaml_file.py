"""Parses YAML text to a plain tree with the place of every key and value.

Scalars stay the text that the user wrote: the model that receives them decides their type. So ``password: 007`` is the
password "007" and ``sql_mode: ON`` the text "ON", as in Go's yaml.v2 when it decodes into a string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, ScalarEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from shardmerge.proto.config.finding import ConfigFinding, KeyPath, dotted, error_of
from shardmerge.proto.errors import ErrorSpec, config

Tree: TypeAlias = "str | list[Tree] | dict[str, Tree] | None"
"""None is YAML's null: ``key:`` without a value, ``~`` or ``null``."""

MAX_BYTES = 1024 * 1024
"""The size limit of a configuration file."""
_MAX_WRITTEN = 30_000
"""Values that a file may hold, keys included: six thousand tables, one by one. Reading as many takes seconds."""
_MAX_LINKS = 1000
"""Aliases and merge keys that a file may hold: reading more takes longer than a caller may take from the master."""
_MAX_DEPTH = 100

_PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")
)


@dataclass(frozen=True, slots=True)
class YamlPlace:
    """A place in a file; both numbers count from 1. Line 0: the command line."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """A file that is a mapping. ``keys`` and ``values``: the places of each path's key and value; ``spans``: where a
    value's text begins and ends, in characters from 0, quotes included (YAML only)."""

    file: str
    root: dict[str, Tree]
    keys: Mapping[KeyPath, YamlPlace]
    values: Mapping[KeyPath, YamlPlace]
    spans: Mapping[KeyPath, tuple[int, int]] = field(default_factory=dict[KeyPath, tuple[int, int]])

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
        place = places.get(known, YamlPlace(1, 1))
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

    ``file`` is only used in messages. Raises ``config.NOT_YAML`` for what is not YAML, ``config.INVALID`` for duplicate
    keys, aliases that contain themselves, tags and keys that are no text, and ``config.TOO_LARGE``.
    """
    document, findings = compose(text, file)
    problem = error_of(findings)
    if problem is not None or document is None:
        raise problem or config.INVALID(finding=ConfigFinding(file, 1, 1, "", "not a mapping"), more="")
    return document


def compose(text: str, file: str) -> tuple[Document | None, list[ConfigFinding]]:
    """The document, or None, and every finding, from which :func:`read` makes its errors. Pure."""
    size = len(text)
    if size > MAX_BYTES:
        message = f"{size} characters are more than a configuration file may have ({MAX_BYTES})"
        return None, [ConfigFinding(file, 1, 1, "", message, spec=config.TOO_LARGE)]
    walk = _Walk(file)
    if _open_brackets(text) > _MAX_DEPTH:
        # Each open bracket may be a key's beginning until its line ends: the scanner's work grows with the square.
        return None, [ConfigFinding(file, 1, 1, "", "not YAML: nested too deeply", spec=config.NOT_YAML)]
    try:
        # Some editors write U+FEFF before the text: it is not part of it; places stay as the editor shows them.
        reader = YAML(typ="safe", pure=True)
        reader.Composer = _Composer
        node = reader.compose(text.removeprefix("\ufeff"))
        if node is not None:
            _measure(node, {})
        root = walk.tree(node, (), ()) if node is not None else {}
    except _TooMuch as error:
        return None, [ConfigFinding(file, 1, 1, "", str(error), spec=config.TOO_LARGE)]
    except _ExpandsTooMuch as error:
        message = f"more than {_MAX_WRITTEN} keys and values after aliases are expanded"
        return None, [ConfigFinding(file, error.place.line, error.place.column, "", message)]
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        # Names of aliases and anchors are cut off: an unquoted password may begin with * or &.
        what = ", ".join(filter(None, (error.context, error.problem))) or "cannot be read"
        what = re.sub(r"(alias|anchor) '.*", r"\1", what)
        return None, [ConfigFinding(file, line, column, "", f"not YAML: {what}", spec=config.NOT_YAML)]
    # In addition to its own errors the scanner raises those of chr() for escapes beyond Unicode, and deep nesting
    # exhausts the stack. Their text may quote the file, which holds passwords: it is not shown.
    except (YAMLError, ValueError, OverflowError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else "a character that YAML does not allow"
        return None, [ConfigFinding(file, *_odd_character(text), "", f"not YAML: {what}", spec=config.NOT_YAML)]
    if not walk.findings and not isinstance(root, dict):
        walk.findings.append(ConfigFinding(file, 1, 1, "", "the file must be a mapping of keys to values"))
    document = Document(file, root, walk.keys, walk.values, walk.spans) if isinstance(root, dict) else None
    return (None if walk.findings else document), walk.findings


_ODD = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _odd_character(text: str) -> tuple[int, int]:
    """Line and column of the first character that YAML does not allow; the top when there is none."""
    found = _ODD.search(text)
    if found is None:
        return 1, 1
    before = text[: found.start()]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def read_file(path: Path) -> str:
    """The text of a configuration file; raises ``config.UNREADABLE``, ``config.TOO_LARGE``."""
    try:
        if path.is_dir():
            raise config.UNREADABLE(file=path, reason="it is a directory")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES * 4 + 1)  # a character has at most four
        if len(content) > MAX_BYTES * 4:
            message = f"more than {MAX_BYTES * 4} bytes"
            raise config.TOO_LARGE(finding=ConfigFinding(str(path), 1, 1, "", message), more="")
        return content.decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise config.UNREADABLE(file=path, reason=error.strerror or "input/output error") from error
    except UnicodeDecodeError as error:
        raise config.UNREADABLE(file=path, reason=f"byte {error.start} is not UTF-8") from error


class _TooMuch(Exception):
    """The file holds more than may be read."""


class _ExpandsTooMuch(Exception):
    """The aliases in the value at ``place`` expand to more than may be read."""

    def __init__(self, place: YamlPlace) -> None:
        self.place = place


class _Composer(Composer):
    """Stops at a bound, before all of a file is read."""

    _written = 0
    _links = 0
    _inside = 0

    def compose_node(self, parent: object, index: object) -> Node | None:
        self.warn_double_anchors = False  # a second anchor of a name is valid YAML and needs no warning on stderr
        self._written += 1
        self._inside += 1
        if self._written > _MAX_WRITTEN:
            raise _TooMuch(f"more than {_MAX_WRITTEN} keys and values; patterns name many tables in one line")
        self._links += self._begins_link()
        if self._links > _MAX_LINKS:
            raise _TooMuch(f"more than {_MAX_LINKS} aliases and merge keys")
        if self._inside > _MAX_DEPTH:
            raise RecursionError
        node = super().compose_node(parent, index)
        self._inside -= 1
        return node

    def _begins_link(self) -> bool:
        event = self.parser.peek_event()
        return isinstance(event, AliasEvent) or (isinstance(event, ScalarEvent) and event.value == "<<")


def _measure(node: Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How many keys and values it has with its aliases expanded, and how deeply they are nested. ``known``: by
    identity; each node is looked at once. Raises _ExpandsTooMuch and RecursionError."""
    found = known.get(id(node))
    if found is not None:
        return found
    known[id(node)] = 0, 0  # for an alias within it: the walk ends there
    children: list[Node] = []
    if isinstance(node, MappingNode):
        children = [each for pair in node.value for each in pair]
    elif isinstance(node, SequenceNode):
        children = node.value
    size = 1
    depth = 0
    for child in children:
        inner, below = _measure(child, known)
        size, depth = size + inner, max(depth, below)
    if size > _MAX_WRITTEN:
        raise _ExpandsTooMuch(_place(node))
    if depth > _MAX_DEPTH:
        raise RecursionError
    known[id(node)] = size, depth + 1
    return size, depth + 1


def _open_brackets(text: str) -> int:
    """The highest number of flow-style brackets that are open at once, anywhere."""
    most = depth = 0
    for bracket in re.finditer(r"[\[\]{}]", text):
        depth = max(0, depth + (1 if bracket[0] in "[{" else -1))
        most = max(most, depth)
    return most


class _Walk:
    """Turns composed nodes into a tree, and collects places and problems."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[ConfigFinding] = []
        self.keys: dict[KeyPath, YamlPlace] = {}
        self.values: dict[KeyPath, YamlPlace] = {}
        self.spans: dict[KeyPath, tuple[int, int]] = {}
        self._is_endless = False

    def tree(self, node: Node, path: KeyPath, inside: tuple[int, ...]) -> Tree:
        """``inside``: the identities of the nodes around this one, to detect an alias of itself."""
        self.values[path] = _place(node)
        if self._is_endless:
            return None
        if id(node) in inside:
            self._is_endless = True
            self._add(node, path, "the alias contains itself")
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
        if not _is_text(node.value):
            self._add(node, path, "half of a surrogate pair is no character")
            return None
        self.spans[path] = (node.start_mark.index, node.end_mark.index)
        return node.value

    def _mapping(self, node: MappingNode, path: KeyPath, inside: tuple[int, ...]) -> dict[str, Tree]:
        result: dict[str, Tree] = {}
        for name, (key, value) in self._pairs(node, path, inside).items():
            here = (*path, name)
            self.keys[here] = _place(key)
            result[name] = self.tree(value, here, inside)
        return result

    def _pairs(self, node: MappingNode, path: KeyPath, inside: tuple[int, ...]) -> dict[str, tuple[Node, Node]]:
        """Keys and values by name: those of the mapping, then what ``<<: *alias`` adds."""
        found: dict[str, tuple[Node, Node]] = {}
        merged: list[Node] = []
        for key, value in node.value:
            if str(key.tag) == "tag:yaml.org,2002:merge":
                merged.extend(value.value if isinstance(value, SequenceNode) else [value])
            elif not isinstance(key, ScalarNode) or not _is_text(key.value):
                self._add(key, path, "a key must be text")
            elif key.value in found:
                first = _place(found[key.value][0]).line
                self._add(key, (*path, key.value), f"the key is given twice, first in line {first}")
            else:
                found[key.value] = key, value
        for source in merged:
            if not isinstance(source, MappingNode) or id(source) in inside:
                self._add(source, path, "<< needs the alias of another mapping")
                continue
            for name, pair in self._pairs(source, path, (*inside, id(source))).items():
                found.setdefault(name, pair)
        return found

    def _add(self, node: Node, path: KeyPath, message: str) -> None:
        place = _place(node)
        self.findings.append(ConfigFinding(self.file, place.line, place.column, dotted(path), message))


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: an escape of YAML may make half of a surrogate pair."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _place(node: Node) -> YamlPlace:
    return YamlPlace(node.start_mark.line + 1, node.start_mark.column + 1)
