"""Applies the partial changes that an UPDATE made to a JSON column to the value before it.

MySQL writes them with ``binlog_row_value_options=PARTIAL_JSON`` for JSON_SET, JSON_REPLACE and JSON_REMOVE, in
PARTIAL_UPDATE_ROWS events. Formats: sql-common/json_diff.cc (the changes), sql-common/json_path.cc (their paths),
sql/log_event.cc (the row image) of the MySQL server.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from shardmerge.worker.binlog.json.binary import MOST_DEPTH, BadJson, Part, Printer, children, root

_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_PARTIAL_JSON = 1
"""The one known value option."""

_Node = Part | dict[bytes, "_Node"] | list["_Node"]
"""A value as stored in its document, or expanded to the members that may change."""

_Leg = bytes | int
"""A step of a path: the key of a member; the index of an element, ~index if it counts from the last one."""

_LEG = re.compile(
    rb"""\s* (?: \. \s* (?: (?P<quoted> "(?:[^"\\]|\\.)*" ) | (?P<bare> [^\s."\[*]+ ) )
             | \[ \s* (?: last \s* (?: - \s* (?P<back> [0-9]{1,10} ) \s* )? | (?P<index> [0-9]{1,10} ) \s* ) \] )""",
    re.VERBOSE | re.DOTALL,
)


class PartialHead(NamedTuple):
    """The head of the after image of a partial update.

    ``columns``: bit n is set if the image has changes instead of a value for the n-th JSON column of the table (all
    JSON columns count, also those that the image lacks). ``at``: the byte after it, where the image's bitmap of NULLs
    begins.
    """

    columns: int
    at: int


def partial_head(data: bytes, at: int, end: int, json_columns: int) -> PartialHead:
    """Read the head before the after image of each row in a PARTIAL_UPDATE_ROWS event.

    The value options are a length-encoded integer; with PARTIAL_JSON set, a bitmap of the table's JSON columns follows
    (``json_columns`` of them, those of type code 245 in the table map, lowest bit first). The rest of the image is
    that of any update: a JSON column whose bit is set holds changes (see :func:`apply_diffs`) after the same length
    of 4 bytes that a value has. Column count, column bitmaps and before images are as in UPDATE_ROWS. Raises BadJson.
    """
    options, at = _packed(data, at, end)
    if options & ~_PARTIAL_JSON:
        raise BadJson(f"row value options {options:#x}")
    if not options:
        return PartialHead(0, at)
    size = (json_columns + 7) // 8
    if size > end - at:
        raise BadJson("the bitmap of partial columns is cut off")
    columns = int.from_bytes(data[at : at + size], "little") & ((1 << json_columns) - 1)
    return PartialHead(columns, at + size)


def apply_diffs(before: bytes, diffs: bytes) -> bytes:
    """The text of a JSON value after an update, as the server prints it.

    ``before``: the binary value of the before image. ``diffs``: the consecutive changes: an operation (0 replace,
    1 insert, 2 remove), a path and, except for remove, a binary value, path and value with a length-encoded
    integer before them. Without any change the value is unchanged. Raises BadJson for malformed changes and for those
    that do not fit ``before``: replace and remove need a value at the path; insert into an object needs no value there,
    insert into an array shifts the elements after it, or appends.
    """
    value = _Value(before, len(before) + len(diffs))
    at = 0
    while at < len(diffs):
        operation = diffs[at]
        if operation > _REMOVE:
            raise BadJson(f"unknown operation {operation}")
        path_at, at = _block(diffs, at + 1)
        legs = parse_path(diffs[path_at:at])
        if not legs:
            raise BadJson("a change of the whole value")
        operand: Part | None = None
        if operation != _REMOVE:
            operand_at, at = _block(diffs, at)
            operand = root(diffs, operand_at, at)
        _change(value.holder(legs), legs[-1], operation, operand)
    printer = Printer(len(before) + len(diffs))
    _print(printer, value.tree, 0)
    return printer.text()


def parse_path(path: bytes) -> list[_Leg]:
    """The steps of a JSON path without wildcards: ``$.a."b c"[3][last-1]``. Raises BadJson."""
    text = path.strip()
    if not text.startswith(b"$"):
        raise BadJson("a path without $")
    legs: list[_Leg] = []
    at = 1
    while at < len(text):
        match = _LEG.match(text, at)
        if match is None:
            raise BadJson("a path that leads nowhere")
        at = match.end()
        quoted, bare, back, index = match.group("quoted", "bare", "back", "index")
        if quoted is not None:
            legs.append(_unquoted(quoted))
        elif bare is not None:
            legs.append(bare)
        else:
            legs.append(int(index) if index is not None else ~int(back or 0))
    return legs


def _unquoted(text: bytes) -> bytes:
    try:
        name: str = json.loads(text, strict=False)
        return name.encode("utf-8")
    except ValueError:  # also UnicodeError
        raise BadJson("a path with a malformed key") from None


class _Value:
    """A value whose arrays and objects are expanded where a path leads through them.

    ``most``: how many members may be expanded in total. Members that share no bytes are fewer than the document's
    bytes.
    """

    def __init__(self, before: bytes, most: int) -> None:
        self._left = most
        self.tree: _Node = root(before, 0, len(before))

    def holder(self, legs: list[_Leg]) -> _Node:
        """The container of the path's last step, expanded, as are all containers on the path."""
        self.tree = node = self._opened(self.tree)
        for leg in legs[:-1]:
            if isinstance(node, dict) and isinstance(leg, bytes) and leg in node:
                node[leg] = inner = self._opened(node[leg])
            elif isinstance(node, list) and isinstance(leg, int) and _within(leg, node):
                node[leg] = inner = self._opened(node[leg])
            else:
                raise BadJson("a path to a value that is not there")
            node = inner
        return node

    def _opened(self, node: _Node) -> _Node:
        """``node`` with its members as nodes, if it is an array or object."""
        inside = children(node) if isinstance(node, Part) else None
        if inside is None:
            return node
        self._left -= len(inside)
        if self._left < 0:
            raise BadJson("values share bytes")
        return dict(inside) if isinstance(inside, dict) else list(inside)


def _within(index: int, elements: list[_Node]) -> bool:
    return -len(elements) <= index < len(elements)


def _change(holder: _Node, leg: _Leg, operation: int, value: Part | None) -> None:
    if isinstance(holder, dict) and isinstance(leg, bytes):
        if (leg in holder) == (operation == _INSERT):
            raise BadJson("a change that does not fit the members of its object")
        if value is None:
            del holder[leg]
        else:
            holder[leg] = value
    elif isinstance(holder, list) and isinstance(leg, int):
        if operation == _INSERT and value is not None:
            # Beyond the last element: append; before the first: insert before it.
            holder.insert(leg if leg >= 0 else max(0, len(holder) + leg), value)
        elif not _within(leg, holder):
            raise BadJson("a change of an element that is not there")
        elif value is None:
            del holder[leg]
        else:
            holder[leg] = value
    else:
        raise BadJson("a change that does not fit the value it is in")


def _print(printer: Printer, node: _Node, depth: int) -> None:
    if isinstance(node, Part):
        printer.part(node, depth)
        return
    if depth >= MOST_DEPTH:
        raise BadJson(f"more than {MOST_DEPTH} levels")
    if isinstance(node, dict):
        printer.raw(b"{")
        # As the server sorts keys: shorter ones first, then by bytes.
        for index, key in enumerate(sorted(node, key=lambda name: (len(name), name))):
            printer.raw(b", " if index else b"")
            printer.string(key)
            printer.raw(b": ")
            _print(printer, node[key], depth + 1)
        printer.raw(b"}")
    else:
        printer.raw(b"[")
        for index, element in enumerate(node):
            printer.raw(b", " if index else b"")
            _print(printer, element, depth + 1)
        printer.raw(b"]")


def _block(data: bytes, at: int) -> tuple[int, int]:
    """First byte and end of a string that its length precedes."""
    size, at = _packed(data, at, len(data))
    if size > len(data) - at:
        raise BadJson("a change is cut off")
    return at, at + size


def _packed(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A length-encoded integer and the byte after it."""
    if at >= end:
        raise BadJson("an integer is cut off")
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None or size > end - at - 1:
        raise BadJson("a length is malformed")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size
