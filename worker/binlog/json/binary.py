# cython: language_level=3, cdivision=True
"""Converts MySQL's binary JSON to the text that the server prints for it in a SELECT.

Formats: sql-common/json_binary.h (the binary form) and sql-common/json_dom.cc (the text) of the MySQL server.

Every read is bounds-checked. In a server's document no two values share bytes, so the visited bytes are counted and
must not exceed the document's size: time and memory stay linear for any offsets.

Compiled by Cython; plain Python where it is not compiled.
"""

from __future__ import annotations

import struct

import cython

from shardmerge.worker.binlog.json.scalars import NEWDECIMAL, VAR_STRING, BadJson, base64_text, double_text, opaque_text

if not cython.compiled:
    from shardmerge.worker.binlog.little_endian import little


__all__ = ["MOST_DEPTH", "BadJson", "Part", "Printer", "children", "json_text", "root"]

MOST_DEPTH = 100
"""Levels of arrays and objects that a server stores (JSON_DOCUMENT_MAX_DEPTH)."""

_double_at = struct.Struct("<d").unpack_from

# Kinds of values. Up to 3 they are containers: bit 0 set means offsets of 4 bytes instead of 2.
_OBJECT = cython.declare(cython.int, 1)
_ARRAY = cython.declare(cython.int, 3)
_LITERAL = cython.declare(cython.int, 4)
_INT16 = cython.declare(cython.int, 5)
_UINT16 = cython.declare(cython.int, 6)
_UINT32 = cython.declare(cython.int, 8)
_DOUBLE = cython.declare(cython.int, 11)
_STRING = cython.declare(cython.int, 12)
_OPAQUE = cython.declare(cython.int, 15)

_DEPTH = cython.declare(cython.int, MOST_DEPTH)
_LITERALS = (b"null", b"true", b"false")
_NUMBER_BYTES = b"\2\2\4\4\x08\x08\x08"  # of kinds 5–11: INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE
_HEX = b"0123456789abcdef"
_MORE = bytes(1 if byte in b'"\\\b\t\n\f\r' else 5 if byte < 32 else 0 for byte in range(256))
"""The number of bytes that escaping adds to a byte of a string: ``\\n``, ``\\u001f``."""
_LETTER = bytes({8: 98, 9: 116, 10: 110, 12: 102, 13: 114}.get(byte, byte) for byte in range(256))
"""The byte after the backslash where escaping adds one byte: b, t, n, f, r or the byte itself."""


def json_text(data: bytes, start: int, stop: int, base64_strings: bool = False) -> bytes:
    """The text of the JSON value in the bytes start..stop of ``data``, as UTF-8.

    No bytes at all (INSERT IGNORE of NULL into a NOT NULL column) are ``null``. ``base64_strings``: the server is a
    MySQL 5.7, which prints strings that were stored as opaque VAR_STRING in base64; later ones print them as strings.
    Raises BadJson for bytes that are cut off or not a JSON value, for more than 100 levels, for values that share
    bytes.

    A target that gets the text as a literal of shardmerge.worker.binlog.json.literals prints the same text again.
    Types that JSON text cannot express are lost: DATE, TIME, DATETIME, TIMESTAMP, BIT and BLOB become strings,
    DECIMAL becomes DOUBLE where its digits allow, UNSIGNED INTEGER becomes INTEGER where it fits; only JSON_TYPE()
    shows the difference. A snapshot, which reads the server's text, has the same result.
    """
    printer = Printer(stop - start, base64_strings)
    printer.part(root(data, start, stop), 0)
    return printer.text()


@cython.final
@cython.cclass
class Part:
    """A value inside ``doc``: its kind, its first byte, and the end of the bytes that it may use."""

    doc: bytes
    kind: cython.int
    at: cython.Py_ssize_t
    limit: cython.Py_ssize_t

    def __init__(self, doc: bytes, kind: int, at: int, limit: int) -> None:
        self.doc = doc
        self.kind = kind
        self.at = at
        self.limit = limit


def root(doc: bytes, start: int, stop: int) -> Part:
    """The value in the bytes start..stop. Raises BadJson."""
    if start < 0 or stop > len(doc) or start > stop:
        raise BadJson("the value lies outside its bytes")
    if start == stop:
        return Part(b"", _LITERAL, 0, 0)
    return Part(doc, doc[start], start + 1, stop)


def children(part: Part) -> dict[bytes, Part] | list[Part] | None:
    """The members of an object by key, or the elements of an array, in their order; None for a scalar.

    Raises BadJson.
    """
    if part.kind > _ARRAY:
        return None
    box = _Container(part.doc, part.kind, part.at, part.limit)
    elements: list[Part] = []
    members: dict[bytes, Part] = {}
    i: cython.Py_ssize_t
    for i in range(box.count):
        box.element(i)
        child = Part(part.doc, box.kind, box.value_at, box.value_limit)
        if box.is_object:
            box.key(i)
            members[part.doc[box.key_at : box.key_at + box.key_size]] = child
        else:
            elements.append(child)
    return members if box.is_object else elements


@cython.final
@cython.cclass
class _Container:
    """The head of an array or object. Offsets in it count from its first byte.

    It has the number of members and the total size; for each member of an object offset and length of its key; for
    each member its kind and the value itself, if it is short enough, or its offset. Keys and values follow it.
    """

    doc: bytes
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    head: cython.Py_ssize_t
    count: cython.Py_ssize_t
    width: cython.int
    is_object: cython.bint
    keys_at: cython.Py_ssize_t
    values_at: cython.Py_ssize_t
    # What key() and element() found:
    key_at: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    kind: cython.int
    value_at: cython.Py_ssize_t
    value_limit: cython.Py_ssize_t

    def __init__(self, doc: bytes, kind: cython.int, at: cython.Py_ssize_t, limit: cython.Py_ssize_t) -> None:
        data: cython.p_uchar = doc
        self.doc = doc
        self.at = at
        self.width = 4 if kind & 1 else 2
        self.is_object = kind <= _OBJECT
        if limit - at < 2 * self.width:
            raise BadJson("an array or object is cut off")
        self.count = little(data, at, self.width)
        self.size = little(data, at + self.width, self.width)
        self.keys_at = at + 2 * self.width
        self.values_at = self.keys_at
        if self.is_object:
            self.values_at += self.count * (self.width + 2)
        self.head = self.values_at + self.count * (self.width + 1) - at
        if self.size > limit - at or self.head > self.size:
            raise BadJson("an array or object exceeds its bytes")
        self.key_at = 0
        self.key_size = 0
        self.kind = 0
        self.value_at = 0
        self.value_limit = 0

    @cython.cfunc
    def key(self, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Find a key; returns its length. Call it in the order of the keys: shorter ones first, then by bytes, none
        twice."""
        data: cython.p_uchar = self.doc
        entry: cython.Py_ssize_t = self.keys_at + index * (self.width + 2)
        offset: cython.Py_ssize_t = little(data, entry, self.width)
        size: cython.Py_ssize_t = little(data, entry + self.width, 2)
        if offset < self.head or offset + size > self.size:
            raise BadJson("a key lies outside its object")
        offset += self.at
        if index:
            i: cython.Py_ssize_t = 0
            last: cython.Py_ssize_t = self.key_at
            if size == self.key_size:
                while i < size and data[last + i] == data[offset + i]:
                    i += 1
            if size < self.key_size or (size == self.key_size and (i == size or data[last + i] > data[offset + i])):
                raise BadJson("keys are not in order")
        self.key_at = offset
        self.key_size = size
        return size

    @cython.cfunc
    def element(self, index: cython.Py_ssize_t) -> cython.bint:
        """Find a value; returns whether it is in the head."""
        data: cython.p_uchar = self.doc
        entry: cython.Py_ssize_t = self.values_at + index * (self.width + 1)
        self.kind = data[entry]
        if self.kind >= _LITERAL and self.kind <= (_UINT32 if self.width == 4 else _UINT16):
            self.value_at = entry + 1
            self.value_limit = entry + 1 + self.width
            return True
        offset: cython.Py_ssize_t = little(data, entry + 1, self.width)
        if offset < self.head or offset > self.size:
            raise BadJson("a value lies outside its array or object")
        self.value_at = self.at + offset
        self.value_limit = self.at + self.size
        return False


@cython.final
@cython.cclass
class Printer:
    """Collects the text of values.

    ``budget``: how many bytes of documents it may visit. ``base64_strings``: see :func:`json_text`.
    """

    out: bytearray
    used: cython.Py_ssize_t
    budget: cython.Py_ssize_t
    plain: cython.bint
    decimals: cython.bint
    base64_strings: cython.bint
    payload: cython.Py_ssize_t

    def __init__(self, budget: int, base64_strings: bool = False) -> None:
        self.out = bytearray(64)
        self.used = 0
        self.budget = budget
        self.plain = True  # no byte beyond ASCII
        self.decimals = False
        self.base64_strings = base64_strings
        self.payload = 0  # the first byte of the string whose length was read last

    def text(self) -> bytes:
        """The printed text. Raises BadJson if it is not UTF-8."""
        text = bytes(memoryview(self.out)[: self.used])
        if not self.plain:
            try:
                text.decode("utf-8")
            except UnicodeDecodeError:
                raise BadJson("a string is not UTF-8") from None
        return text

    def saw_decimals(self) -> bool:
        """Whether a number of type DECIMAL was printed."""
        return self.decimals

    def part(self, part: Part, depth: int) -> None:
        """Print a value that has ``depth`` arrays and objects around it. Raises BadJson."""
        if not part.doc:
            self.raw(b"null")
        else:
            self._value(part.doc, part.kind, part.at, part.limit, depth, False)

    def string(self, text: bytes) -> None:
        """Print ``text`` quoted and escaped."""
        self._string(text, 0, len(text))

    @cython.ccall
    def raw(self, text: bytes) -> object:
        """Print ``text`` unchanged."""
        size: cython.Py_ssize_t = len(text)
        data: cython.p_uchar = text
        out: cython.p_uchar = self._room(size)
        write: cython.Py_ssize_t = self.used
        i: cython.Py_ssize_t
        for i in range(size):
            out[write + i] = data[i]
        self.used = write + size
        return None

    @cython.cfunc
    def _room(self, size: cython.Py_ssize_t) -> cython.p_uchar:
        """The buffer, with at least ``size`` free bytes after the used ones."""
        have: cython.Py_ssize_t = len(self.out)
        if have - self.used < size:
            self.out.extend(bytes(max(have, self.used + size - have)))
        out: cython.p_uchar = self.out
        return out

    @cython.cfunc
    def _spend(self, size: cython.Py_ssize_t) -> cython.bint:
        if size > self.budget:
            raise BadJson("values share bytes")
        self.budget -= size
        return True

    @cython.cfunc
    def _value(
        self, doc: bytes, kind: cython.int, at: cython.Py_ssize_t, limit: cython.Py_ssize_t, depth: cython.int,
        inlined: cython.bint,
    ) -> object:  # fmt: skip
        data: cython.p_uchar = doc
        numbers: cython.p_uchar = _NUMBER_BYTES
        size: cython.Py_ssize_t
        if kind <= _ARRAY:
            self._container(doc, kind, at, limit, depth)
        elif kind == _LITERAL:
            if limit <= at or data[at] > 2:
                raise BadJson("an unknown literal")
            self._spend(0 if inlined else 1)
            which: cython.int = data[at]
            self.raw(_LITERALS[which])
        elif kind <= _DOUBLE:
            size = numbers[kind - _INT16]
            if limit - at < size:
                raise BadJson("a number is cut off")
            self._spend(0 if inlined else size)
            if kind == _DOUBLE:
                self.raw(double_text(_double_at(doc, at)[0]))
            else:
                self._integer(little(data, at, size), size, (kind - _INT16) & 1 == 0)
        elif kind == _STRING:
            size = self._length(data, at, limit)
            self._string(doc, self.payload, size)
        elif kind == _OPAQUE:
            if limit <= at:
                raise BadJson("an opaque value without a type")
            size = self._length(data, at + 1, limit)
            self._spend(1)
            self._opaque(doc, data[at], size)
        else:
            raise BadJson(f"unknown type {kind}")
        return None

    @cython.cfunc
    def _container(
        self, doc: bytes, kind: cython.int, at: cython.Py_ssize_t, limit: cython.Py_ssize_t, depth: cython.int
    ) -> object:
        box = _Container(doc, kind, at, limit)
        inlined: cython.bint
        i: cython.Py_ssize_t
        if depth >= _DEPTH:
            raise BadJson(f"more than {MOST_DEPTH} levels")
        self._spend(box.head)
        self.raw(b"{" if box.is_object else b"[")
        for i in range(box.count):
            if i:
                self.raw(b", ")
            if box.is_object:
                self._spend(box.key(i))
                self._string(doc, box.key_at, box.key_size)
                self.raw(b": ")
            inlined = box.element(i)
            self._value(doc, box.kind, box.value_at, box.value_limit, depth + 1, inlined)
        self.raw(b"}" if box.is_object else b"]")
        return None

    @cython.cfunc
    def _length(self, data: cython.p_uchar, at: cython.Py_ssize_t, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The length before a string, 7 bits a byte, the lowest first; the string must end before ``limit``."""
        size: cython.Py_ssize_t = 0
        begin: cython.Py_ssize_t = at
        byte: cython.Py_ssize_t = 0x80
        while byte & 0x80:
            if at >= limit or at - begin > 4:
                raise BadJson("a string's length is cut off")
            byte = data[at]
            size |= (byte & 0x7F) << (7 * (at - begin))
            at += 1
        if size > limit - at:
            raise BadJson("a string exceeds its bytes")
        self._spend(at - begin + size)
        self.payload = at
        return size

    @cython.cfunc
    def _string(self, doc: bytes, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> object:
        data: cython.p_uchar = doc
        more: cython.p_uchar = _MORE
        letters: cython.p_uchar = _LETTER
        digits: cython.p_uchar = _HEX
        added: cython.Py_ssize_t = 0
        seen: cython.uchar = 0
        special: cython.uchar = 0
        i: cython.Py_ssize_t
        byte: cython.uchar
        for i in range(at, at + size):
            byte = data[i]
            seen |= byte
            special |= (byte < 32) | (byte == 34) | (byte == 92)
        if seen & 0x80:
            self.plain = False
        if special:
            for i in range(at, at + size):
                added += more[data[i]]
        out: cython.p_uchar = self._room(size + added + 2)
        write: cython.Py_ssize_t = self.used
        out[write] = 34
        write += 1
        if not special:
            for i in range(size):
                out[write + i] = data[at + i]
            at += size
            write += size
            size = 0
        for i in range(at, at + size):
            byte = data[i]
            if more[byte] == 1:
                out[write] = 92
                out[write + 1] = letters[byte]
                write += 2
            elif more[byte]:
                out[write] = 92
                out[write + 1] = 117
                out[write + 2] = 48
                out[write + 3] = 48
                out[write + 4] = digits[byte >> 4]
                out[write + 5] = digits[byte & 15]
                write += 6
            else:
                out[write] = byte
                write += 1
        out[write] = 34
        self.used = write + 1
        return None

    @cython.cfunc
    def _integer(self, value: cython.ulonglong, size: cython.Py_ssize_t, signed: cython.bint) -> object:
        out: cython.p_uchar = self._room(20)
        write: cython.Py_ssize_t = self.used
        ones: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
        rest: cython.ulonglong
        if signed and value >> (8 * size - 1):
            # The magnitude, without leaving 64 bits in C or in Python.
            value = ((ones >> (64 - 8 * size)) - value) + 1
            out[write] = 45
            write += 1
        rest = value
        while rest > 9:
            rest = rest // 10
            write += 1
        self.used = write + 1
        while True:
            out[write] = 48 + value % 10
            write -= 1
            value = value // 10
            if value == 0:
                break
        return None

    @cython.cfunc
    def _opaque(self, doc: bytes, code: int, size: cython.Py_ssize_t) -> object:
        if code == VAR_STRING and not self.base64_strings:
            self._string(doc, self.payload, size)
            return None
        if code == NEWDECIMAL:
            self.decimals = True
        value: bytes = doc[self.payload : self.payload + size]
        text = opaque_text(code, value)
        self.raw(base64_text(code, value) if text is None else text)
        return None
