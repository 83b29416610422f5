# cython: language_level=3, cdivision=True
"""One column's value as an SQL literal, from the server's text of a SELECT or from a row image's bytes.

Both ways end in the same functions, so that the same value makes the same bytes (worker/rows.py, Literals). Binary
formats: MySQL Internals Manual, "Rows Event"; mysys/my_time.c (temporal types with fractions), strings/decimal.c
(bin2decimal), sql/field.cc (pack) of both servers.

Compiled by Cython, and plain Python where it is not: C types are annotations, bytes are read by index. A codec holds
a scratch buffer: one thread at a time.
"""

from __future__ import annotations

import struct

import cython

from proto import errors
from worker.binlog.charsets import affix_bytes, introducer, is_ascii_superset
from worker.binlog.jsondiff import apply_diffs
from worker.binlog.jsonliteral import literal_of_text, literal_of_value
from worker.binlog.jsontext import BadJson
from worker.plan import AddPrefix, AddSuffix, Constant, Mapping, PartitionId
from worker.table import Column, Table, ValueKind

if not cython.compiled:
    from worker.binlog.little import little


_float_of = struct.Struct("<f").unpack
_double_of = struct.Struct("<d").unpack
_HEX = cython.declare(bytes, b"0123456789ABCDEF")
_NULL = cython.declare(bytes, b"NULL")
_PAIRS = cython.declare(bytes, b"".join([b"%02d" % number for number in range(100)]))
_DECIMAL_BYTES = cython.declare(bytes, b"\0\1\1\2\2\3\3\4\4\4")  # bytes of a group of 0–9 decimal digits

# ValueKind as C integers.
_INTEGER = cython.declare(cython.int, 1)
_DECIMAL = cython.declare(cython.int, 2)
_FLOAT = cython.declare(cython.int, 3)
_DOUBLE = cython.declare(cython.int, 4)
_BIT = cython.declare(cython.int, 5)
_DATE = cython.declare(cython.int, 6)
_TIME = cython.declare(cython.int, 7)
_DATETIME = cython.declare(cython.int, 8)
_TIMESTAMP = cython.declare(cython.int, 9)
_YEAR = cython.declare(cython.int, 10)
_STRING = cython.declare(cython.int, 11)
_BINARY = cython.declare(cython.int, 12)
_ENUM = cython.declare(cython.int, 13)
_SET = cython.declare(cython.int, 14)
_JSON = cython.declare(cython.int, 15)
_GEOMETRY = cython.declare(cython.int, 16)
_VECTOR = cython.declare(cython.int, 17)

_SCRATCH = cython.declare(cython.int, 128)
_MICROSECONDS = cython.declare(cython.int, 6)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _big(data: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.ulonglong:
    value: cython.ulonglong = 0
    i: cython.Py_ssize_t
    for i in range(size):
        value = (value << 8) | data[at + i]
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _power(digits: cython.int) -> cython.ulonglong:
    value: cython.ulonglong = 1
    while digits:
        value *= 10
        digits -= 1
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put(out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.ulonglong, width: cython.int) -> cython.Py_ssize_t:
    """Write ``value`` as ``width`` digits; the byte behind them."""
    pairs: cython.p_uchar = _PAIRS
    stop: cython.Py_ssize_t = at + width
    i: cython.Py_ssize_t = stop
    pair: cython.int
    while i - at >= 2:
        pair = 2 * (value % 100)
        value = value // 100
        i -= 2
        out[i] = pairs[pair]
        out[i + 1] = pairs[pair + 1]
    if i > at:
        out[at] = 48 + value % 10
    return stop


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_digits(out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.ulonglong) -> cython.Py_ssize_t:
    """Write ``value`` as as many digits as it has; the byte behind them."""
    width: cython.int = 1
    rest: cython.ulonglong = value
    while rest >= 10000:
        rest = rest // 10000
        width += 4
    while rest >= 10:
        rest = rest // 10
        width += 1
    return _put(out, at, value, width)


_ESCAPED = cython.declare(cython.int, 1)
_NOT_ASCII = cython.declare(cython.int, 2)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _content(data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
    """What is among the bytes: _ESCAPED (quotes, backslashes, zero bytes), _NOT_ASCII."""
    at: cython.Py_ssize_t
    special: cython.uchar = 0
    high: cython.uchar = 0
    byte: cython.uchar
    # No branch inside: compilers make vector instructions of it.
    for at in range(start, stop):
        byte = data[at]
        high |= byte
        special |= (byte == 39) | (byte == 92) | (byte == 0)
    return (_ESCAPED if special else 0) | (_NOT_ASCII if high & 0x80 else 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_quoted(
    out: cython.p_uchar,
    write: cython.Py_ssize_t,
    data: cython.p_uchar,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    content: cython.int,
) -> cython.Py_ssize_t:
    """Write ``'text'``; the byte behind it. ``content``: what :func:`_content` says of these bytes."""
    at: cython.Py_ssize_t
    byte: cython.uchar
    out[write] = 39
    write += 1
    if not content & _ESCAPED:
        if cython.compiled:
            for at in range(stop - start):
                out[write + at] = data[start + at]
        else:
            out[write : write + stop - start] = data[start:stop]
        write += stop - start
    else:
        for at in range(start, stop):
            byte = data[at]
            if byte == 39 or byte == 92:
                out[write] = 92
                write += 1
            elif byte == 0:
                out[write] = 92
                write += 1
                byte = 48
            out[write] = byte
            write += 1
    out[write] = 39
    return write + 1


@cython.cfunc
@cython.inline
def _cut(out: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytes:
    """A copy of a part of a buffer."""
    if cython.compiled:
        return out[start:stop]
    return bytes(out[start:stop])


class Unreadable(Exception):
    """Bytes that are no value of their column's type; the codec turns it into a coded error."""


@cython.final
@cython.cclass
class ColumnCodec:
    """One column of one shard table: its values as literals, plain or mapped.

    ``fixed``: bytes of a value in a row image, or -1 when a length of ``length_bytes`` bytes stands before it; set by
    :meth:`bind`. ``slot``: index among the written columns, -1 when the column is not written; ``key_slot`` likewise.
    ``absent``: the literal where no value is: NULL, or that of a Constant, which has no value in any image.
    """

    def __init__(
        self, table: Table, column: Column, slot: int, key_slot: int, mapping: Mapping | None, source: str
    ) -> None:
        self.kind = int(column.kind)
        self.start = -1
        self.stop = -1
        self.old_start = -1
        self.old_stop = -1
        self.kept_start = -1
        self.kept_stop = -1
        self.is_json = False
        self.old_json = False
        self.fixed = -1
        self.length_bytes = 1
        self.slot = slot
        self.key_slot = key_slot
        self.unsigned = column.unsigned
        self.packed = False
        self.precision = 0
        self.scale = 0
        self.pad = column.length if column.kind == ValueKind.BINARY else 0
        self.mapped = mapping is not None
        self.constant = isinstance(mapping, Constant)
        self.absent = _NULL
        self.partition = isinstance(mapping, PartitionId)
        self.id_prefix = 0
        self.id_most = 0
        self.id_bits = 0
        self.introducer = b""
        self.quotable = False
        self.before = b""
        self.after = b""
        self.labels: list[bytes] = []
        self.scratch = bytearray(_SCRATCH)
        self.column = column
        self.table = table
        self.source = source
        if column.type_text.startswith("year(2)"):
            raise self.refused("two digits do not tell the century")
        if column.kind == ValueKind.STRING:
            try:
                self.introducer = introducer(column.charset)
                self.quotable = self.introducer == b"" or is_ascii_superset(column.charset)
            except ValueError:
                raise self.refused("its character set is not known") from None
        elif column.kind in (ValueKind.ENUM, ValueKind.SET):
            self.labels = [label.encode("utf-8", "surrogateescape") for label in column.labels]
            if column.kind == ValueKind.ENUM:
                self.labels = [self.quoted(label) for label in self.labels]
        if isinstance(mapping, PartitionId):
            self.id_prefix = mapping.prefix
            self.id_bits = mapping.bits
            self.id_most = (1 << mapping.bits) - 1
            if column.kind not in (ValueKind.INTEGER, ValueKind.STRING):
                raise self.refused("`partition id` maps integers and texts of digits only")
        elif isinstance(mapping, Constant):
            self.absent = self.quoted(mapping.text.encode())
        elif isinstance(mapping, AddPrefix | AddSuffix):
            if column.kind != ValueKind.STRING:
                raise self.refused("`add prefix` and `add suffix` map texts only")
            affix = affix_bytes(mapping.text, column.charset)
            if affix is None:
                raise self.refused(f"{mapping.text!r} cannot be written in character set {column.charset}")
            if isinstance(mapping, AddPrefix):
                self.before = affix
            else:
                self.after = affix

    def bind(self, fixed: int, length_bytes: int, packed: bool, precision: int, scale: int) -> None:
        """How values stand in a row image. ``packed``: the temporal types' newer form, with fractions.

        ``precision``: digits of DECIMAL; ``scale``: its fraction digits, or those of a temporal type.
        """
        self.fixed = fixed
        self.length_bytes = length_bytes
        self.packed = packed
        self.precision = precision
        self.scale = scale

    def bind_json(self, old: bool) -> None:
        """The values are MySQL's binary JSON. ``old``: of a MySQL 5.7 (see worker.binlog.jsonb.json_text)."""
        self.is_json = True
        self.old_json = old

    def name(self) -> str:
        """The column's name."""
        return self.column.name

    def refused(self, reason: str) -> errors.ShardmergeError:
        """The coded error for a column that cannot be handled at all."""
        return errors.decode.UNSUPPORTED_TYPE(
            source=self.source,
            schema=self.table.schema,
            table=self.table.name,
            column=self.column.name,
            type=self.column.type_text,
            reason=reason,
        )

    def unreadable(self, value: bytes) -> errors.ShardmergeError:
        """The coded error for one value; at most 64 of its bytes are shown."""
        shown: str = repr(bytes(value[:64]))[1:]
        return errors.decode.UNREADABLE_VALUE(
            source=self.source,
            schema=self.table.schema,
            table=self.table.name,
            column=self.column.name,
            type=self.column.type_text,
            value=shown,
            at="",
        )

    def overflow(self, value: str) -> errors.ShardmergeError:
        """The coded error for an id that does not fit its bits."""
        return errors.config.ID_OVERFLOW(
            source=self.source,
            schema=self.table.schema,
            table=self.table.name,
            column=self.column.name,
            value=value,
            bits=self.id_bits,
            at="",
        )

    @cython.ccall
    def quoted(self, text: bytes) -> bytes:
        """``'text'``, escaped for a server whose sql_mode lacks NO_BACKSLASH_ESCAPES."""
        return self._quoted(text, 0, len(text))

    @cython.ccall
    def of_text(self, text: bytes | None, mapped: cython.bint) -> bytes:
        """The literal of the server's text for a value (None: NULL), as the select expressions ask for it.

        Raises UNREADABLE_VALUE, ID_OVERFLOW.
        """
        if text is None or self.constant:
            return self.absent
        try:
            return self._of_text(text, mapped)
        except (Unreadable, BadJson):
            raise self.unreadable(text) from None

    @cython.cfunc
    def _of_text(self, text: bytes, mapped: cython.bint) -> bytes:
        data: cython.p_uchar = text
        size: cython.Py_ssize_t = len(text)
        kind: cython.int = self.kind
        if kind == _STRING:
            return self._string(data, 0, size, mapped)
        if kind == _INTEGER:
            plain: bytes = self._number(text, data, size, True, False)
            if mapped and self.partition:
                return self._partition(plain)
            return plain
        if kind == _BINARY or kind == _GEOMETRY or kind == _VECTOR:
            return self._hexadecimal(data, 0, size, self.pad, b"X'")
        if kind == _DECIMAL:
            return self._number(text, data, size, True, True)
        if kind == _BIT or kind == _YEAR:
            return self._number(text, data, size, False, False)
        if kind == _FLOAT or kind == _DOUBLE:
            try:
                return self._real(float(text))
            except ValueError:
                raise Unreadable from None
        if kind == _ENUM:
            return self._label(int(self._number(text, data, size, False, False)))
        if kind == _SET:
            return self._members(int(self._number(text, data, size, False, False)))
        if kind == _JSON:
            return literal_of_text(text)
        return self._temporal_text(data, size)

    @cython.cfunc
    def of_wire(
        self, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, mapped: cython.bint
    ) -> bytes:
        """The literal of the bytes start..stop of a row image: of ``fixed`` bytes where that is set."""
        kind: cython.int = self.kind
        size: cython.Py_ssize_t = stop - start
        if kind == _INTEGER:
            return self._integer(data, start, size, mapped)
        if kind == _STRING:
            return self._string(data, start, stop, mapped)
        if kind == _DECIMAL:
            return self._decimal(data, start)
        if kind == _TIMESTAMP:
            return self._timestamp(data, start)
        if kind == _DATETIME:
            return self._datetime(data, start)
        if kind == _DATE:
            return self._date(little(data, start, 3))
        if kind == _TIME:
            return self._time(data, start)
        if kind == _BINARY:
            if self.pad and size > self.pad:
                raise Unreadable
            return self._hexadecimal(data, start, stop, self.pad, b"X'")
        if kind == _ENUM:
            return self._label(little(data, start, size))
        if kind == _SET:
            return self._members(little(data, start, size))
        if kind == _BIT:
            return self._digits(_big(data, start, size))
        if kind == _YEAR:
            return self._digits(1900 + data[start] if data[start] else 0)
        if kind == _DOUBLE:
            return self._real(_double_of(data[start:stop])[0])
        if kind == _FLOAT:
            return self._real(_float_of(data[start:stop])[0])
        if kind == _GEOMETRY or kind == _VECTOR:
            return self._hexadecimal(data, start, stop, 0, b"X'")
        if kind == _JSON:
            return self._json(data, start, stop)
        raise Unreadable

    @cython.cfunc
    def _json(self, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytes:
        """A binary value; or, with ``old_start`` set, changes of the value at old_start..old_stop."""
        try:
            if self.old_start < 0:
                return literal_of_value(_cut(data, start, stop), 0, stop - start, self.old_json)
            text: bytes = apply_diffs(_cut(data, self.old_start, self.old_stop), _cut(data, start, stop))
            return literal_of_text(text)
        except BadJson:
            raise Unreadable from None

    @cython.cfunc
    def most_bytes(self) -> cython.Py_ssize_t:
        """At most so many bytes :meth:`put_wire` writes for the value at hand; 0: it does not write this kind."""
        if self.kind == _INTEGER or self.start < 0:
            return 0 if self.constant else 24
        if self.kind == _STRING and self.quotable and not self.mapped:
            return 2 * (self.stop - self.start) + 2
        return 0

    @cython.cfunc
    def put_wire(self, out: cython.p_uchar, write: cython.Py_ssize_t, data: cython.p_uchar) -> cython.Py_ssize_t:
        """Write the literal that :meth:`of_wire` makes (mapped) of the value at hand; the byte behind it, or -1.

        For the commonest kinds only, and 7-bit text of other character sets than the connection's; -1: ask of_wire.
        """
        if self.start < 0:
            out[write] = 78
            out[write + 1] = 85
            out[write + 2] = 76
            out[write + 3] = 76
            return write + 4
        if self.kind == _INTEGER:
            return self._put_integer(out, write, data, self.start, self.stop - self.start, True)
        content: cython.int = _content(data, self.start, self.stop)
        if self.introducer and content & _NOT_ASCII:
            return -1
        return _put_quoted(out, write, data, self.start, self.stop, content)

    @cython.cfunc
    def most_text_bytes(self, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """At most so many bytes :meth:`put_text` writes for ``size`` bytes of text; 0: it does not write this kind."""
        kind: cython.int = self.kind
        if kind == _STRING:
            return 2 * size + 2 if self.quotable and not self.mapped else 0
        if kind == _INTEGER or kind == _DECIMAL or kind == _BIT or kind == _YEAR:
            return size + 24
        if kind == _DATE or kind == _TIME or kind == _DATETIME or kind == _TIMESTAMP:
            return size + 2
        return 0

    @cython.cfunc
    def put_text(
        self,
        out: cython.p_uchar,
        write: cython.Py_ssize_t,
        data: cython.p_uchar,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Write the literal that :meth:`of_text` makes (mapped) of the text start..stop; the byte behind it, or -1.

        For the commonest kinds, where it is as good as the text itself; -1: ask of_text, which also says what is wrong.
        """
        at: cython.Py_ssize_t
        kind: cython.int = self.kind
        if kind == _STRING:
            content: cython.int = _content(data, start, stop)
            if self.introducer and content & _NOT_ASCII:
                return -1
            return _put_quoted(out, write, data, start, stop, content)
        if kind == _INTEGER or kind == _DECIMAL or kind == _BIT or kind == _YEAR:
            return self._put_number(out, write, data, start, stop)
        if stop - start < 8 or stop - start > 26:
            return -1
        for at in range(start, stop):
            if not (48 <= data[at] <= 58 or data[at] == 45 or data[at] == 46 or data[at] == 32):
                return -1
        return _put_quoted(out, write, data, start, stop, 0)

    @cython.cfunc
    def _put_number(
        self,
        out: cython.p_uchar,
        write: cython.Py_ssize_t,
        data: cython.p_uchar,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Write a number's digits; -1: it has zeros in front, or is no plain number."""
        at: cython.Py_ssize_t = start
        value: cython.ulonglong = 0
        fraction: cython.bint = self.kind == _DECIMAL
        if at < stop and data[at] == 45 and not self.partition and (self.kind == _INTEGER or fraction):
            out[write] = 45
            write += 1
            at += 1
        if at == stop or data[at] == 46 or data[stop - 1] == 46:
            return -1
        if data[at] == 48 and stop - at > 1 and data[at + 1] != 46:
            return -1
        if self.partition:
            if stop - at > 18:  # 64 bits would not hold it for certain
                return -1
            while at < stop:
                if data[at] < 48 or data[at] > 57:
                    return -1
                value = value * 10 + (data[at] - 48)
                at += 1
            if value > self.id_most:
                return -1
            return _put_digits(out, write, value | self.id_prefix)
        while at < stop:
            if data[at] == 46 and fraction:
                fraction = False
            elif data[at] < 48 or data[at] > 57:
                return -1
            out[write] = data[at]
            write += 1
            at += 1
        return write

    @cython.cfunc
    def _digits(self, value: cython.ulonglong) -> bytes:
        out: cython.p_uchar = self.scratch
        return _cut(out, 0, _put_digits(out, 0, value))

    @cython.cfunc
    def _integer(
        self, data: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, mapped: cython.bint
    ) -> bytes:
        out: cython.p_uchar = self.scratch
        return _cut(out, 0, self._put_integer(out, 0, data, at, size, mapped))

    @cython.cfunc
    def _put_integer(
        self,
        out: cython.p_uchar,
        write: cython.Py_ssize_t,
        data: cython.p_uchar,
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        mapped: cython.bint,
    ) -> cython.Py_ssize_t:
        """Write an integer's digits; the byte behind them."""
        value: cython.ulonglong = little(data, at, size)
        negative: cython.bint = False
        if not self.unsigned and data[at + size - 1] & 0x80:
            negative = True
            # Two's complement within `size` bytes, without leaving 64 bits in C or in Python.
            ones: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
            value = ((ones >> (64 - 8 * size)) - value) + 1
        if mapped and self.partition:
            if negative or value > self.id_most:
                raise self.overflow(f"{'-' if negative else ''}{value}")
            value |= self.id_prefix
        if negative:
            out[write] = 45
            write += 1
        return _put_digits(out, write, value)

    @cython.cfunc
    def _partition(self, digits: bytes) -> bytes:
        value: int = int(digits)
        if value < 0 or value > self.id_most:
            raise self.overflow(digits.decode("ascii"))
        return b"%d" % (self.id_prefix | value)

    @cython.cfunc
    def _number(
        self, text: bytes, data: cython.p_uchar, size: cython.Py_ssize_t, signed: cython.bint, fraction: cython.bint
    ) -> bytes:
        """The server's digits without ZEROFILL's zeros: [-]digits[.digits]."""
        at: cython.Py_ssize_t = 0
        point: cython.Py_ssize_t = size
        if signed and size and data[0] == 45:
            at = 1
        start: cython.Py_ssize_t = at
        if start == size or data[start] == 46 or data[size - 1] == 46:
            raise Unreadable
        while at < size:
            if data[at] == 46 and fraction and point == size:
                point = at
            elif data[at] < 48 or data[at] > 57:
                raise Unreadable
            at += 1
        at = start
        while at + 1 < point and data[at] == 48:
            at += 1
        if at == start:
            return text
        return (b"-" if start else b"") + text[at:]

    @cython.cfunc
    def _real(self, value: cython.double) -> bytes:
        if value == 0:
            # "-0.0" would be an exact number, which has no negative zero.
            return b"-0e0" if repr(value)[0] == "-" else b"0.0"
        if value - value != 0:  # infinities and NaN: no server stores them
            raise Unreadable
        return repr(value).encode("ascii")

    @cython.cfunc
    def _decimal(self, data: cython.p_uchar, at: cython.Py_ssize_t) -> bytes:
        out: cython.p_uchar = self.scratch
        sizes: cython.p_uchar = _DECIMAL_BYTES
        flip: cython.uchar = 0 if data[at] & 0x80 else 0xFF
        whole: cython.int = self.precision - self.scale
        i: cython.int
        write: cython.Py_ssize_t = 1
        value: cython.ulonglong
        digits: cython.int
        first: cython.Py_ssize_t = at
        # Groups: the odd leading digits, whole groups of 9, the point, groups of 9, the odd trailing digits.
        for part in range(2):
            odd: cython.int = whole % 9 if part == 0 else self.scale % 9
            groups: cython.int = whole // 9 if part == 0 else self.scale // 9
            if part == 1 and self.scale:
                if whole == 0:
                    out[write] = 48
                    write += 1
                out[write] = 46
                write += 1
            for i in range(groups + 1):
                digits = 9
                if i == (0 if part == 0 else groups):
                    digits = odd
                if digits == 0:
                    continue
                value = 0
                stop: cython.Py_ssize_t = at + sizes[digits]
                while at < stop:
                    value = (value << 8) | (data[at] ^ flip ^ (0x80 if at == first else 0))
                    at += 1
                if value >= _power(digits):
                    raise Unreadable
                write = _put(out, write, value, digits)
        begin: cython.Py_ssize_t = 1
        last: cython.Py_ssize_t = (whole if whole else 1) + 1
        while begin + 1 < last and out[begin] == 48:
            begin += 1
        if flip:
            begin -= 1
            out[begin] = 45
        return _cut(out, begin, write)

    @cython.cfunc
    def _label(self, index: cython.ulonglong) -> bytes:
        """ENUM: 0 is the server's '' for a value that was none of the labels."""
        if index == 0:
            return b"''"
        if index > len(self.labels):
            raise Unreadable
        return self.labels[index - 1]

    @cython.cfunc
    def _members(self, mask: cython.ulonglong) -> bytes:
        count: cython.int = len(self.labels)
        if count < 64 and mask >> count:
            raise Unreadable
        return self.quoted(b",".join([label for bit, label in enumerate(self.labels) if mask >> bit & 1]))

    @cython.cfunc
    def _string(
        self, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, mapped: cython.bint
    ) -> bytes:
        if mapped and self.mapped:
            text: bytes = _cut(data, start, stop)
            if self.partition:
                if not text.isdigit():
                    raise Unreadable
                text = self._partition(text)
            else:
                text = self.before + text + self.after
            return self._text_literal(text, 0, len(text))
        return self._text_literal(data, start, stop)

    @cython.cfunc
    def _text_literal(self, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytes:
        content: cython.int = _content(data, start, stop)
        if self.introducer and not (self.quotable and not content & _NOT_ASCII):
            return self._hexadecimal(data, start, stop, 0, self.introducer)
        out: cython.p_uchar = self._room(2 * (stop - start) + 2)
        return _cut(out, 0, _put_quoted(out, 0, data, start, stop, content))

    @cython.cfunc
    def _room(self, size: cython.Py_ssize_t) -> cython.p_uchar:
        """The scratch buffer with at least ``size`` bytes; a huge one is not kept for the next value."""
        have: cython.Py_ssize_t = len(self.scratch)
        if have < size:
            self.scratch = bytearray(size)
        elif have > 1 << 20 and size < have >> 2:
            self.scratch = bytearray(max(size, int(_SCRATCH)))
        out: cython.p_uchar = self.scratch
        return out

    @cython.cfunc
    def _quoted(self, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytes:
        out: cython.p_uchar = self._room(2 * (stop - start) + 2)
        return _cut(out, 0, _put_quoted(out, 0, data, start, stop, _content(data, start, stop)))

    @cython.cfunc
    def _hexadecimal(
        self,
        data: cython.p_uchar,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        pad: cython.Py_ssize_t,
        opening: bytes,
    ) -> bytes:
        """``X'…'`` behind its introducer, padded with zero bytes to ``pad`` bytes."""
        head: cython.Py_ssize_t = len(opening)
        most: cython.Py_ssize_t = stop - start
        if most < pad:
            most = pad
        out: cython.p_uchar = self._room(2 * most + head + 1)
        chars: cython.p_uchar = _HEX
        intro: cython.p_uchar = opening
        write: cython.Py_ssize_t
        at: cython.Py_ssize_t
        for write in range(head):
            out[write] = intro[write]
        write = head
        for at in range(start, stop):
            out[write] = chars[data[at] >> 4]
            out[write + 1] = chars[data[at] & 15]
            write += 2
        while write < head + 2 * most:
            out[write] = 48
            write += 1
        out[write] = 39
        return _cut(out, 0, write + 1)

    @cython.cfunc
    def _temporal_text(self, data: cython.p_uchar, size: cython.Py_ssize_t) -> bytes:
        at: cython.Py_ssize_t
        if size < 8 or size > 26:
            raise Unreadable
        for at in range(size):
            # digits, "-", ".", ":" and " "
            if not (48 <= data[at] <= 58 or data[at] == 45 or data[at] == 46 or data[at] == 32):
                raise Unreadable
        return self._quoted(data, 0, size)

    @cython.cfunc
    def _day(
        self, out: cython.p_uchar, year: cython.ulonglong, month: cython.ulonglong, day: cython.ulonglong
    ) -> cython.Py_ssize_t:
        """Write ``'YYYY-MM-DD``; the byte behind it. Days the calendar lacks (zero, 31 February) are kept."""
        if year > 9999 or month > 12 or day > 31:
            raise Unreadable
        out[0] = 39
        _put(out, 1, year, 4)
        out[5] = 45
        _put(out, 6, month, 2)
        out[8] = 45
        return _put(out, 9, day, 2)

    @cython.cfunc
    def _clock(
        self,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        hour: cython.ulonglong,
        minute: cython.ulonglong,
        second: cython.ulonglong,
        fraction: cython.ulonglong,
    ) -> bytes:
        """Write ``HH:MM:SS[.fraction]'`` and cut the literal off. ``fraction``: in the digits that are stored."""
        stored: cython.int = (self.scale + 1) // 2 * 2
        if minute > 59 or second > 59 or hour > 838 or (stored and fraction >= _power(stored)):
            raise Unreadable
        at = _put(out, at, hour, 3 if hour > 99 else 2)
        out[at] = 58
        at = _put(out, at + 1, minute, 2)
        out[at] = 58
        at = _put(out, at + 1, second, 2)
        if self.scale:
            out[at] = 46
            _put(out, at + 1, fraction, stored)
            at += 1 + self.scale
        out[at] = 39
        return _cut(out, 0, at + 1)

    @cython.cfunc
    def _date(self, packed: cython.ulonglong) -> bytes:
        """DATE: day in 5 bits, month in 4, year in 15."""
        out: cython.p_uchar = self.scratch
        at: cython.Py_ssize_t = self._day(out, packed >> 9, packed >> 5 & 15, packed & 31)
        out[at] = 39
        return _cut(out, 0, at + 1)

    @cython.cfunc
    def _datetime(self, data: cython.p_uchar, at: cython.Py_ssize_t) -> bytes:
        """DATETIME2: sign, year·13 + month in 17 bits, day 5, hour 5, minute 6, second 6, then the fraction.

        The older form is the number YYYYMMDDhhmmss.
        """
        out: cython.p_uchar = self.scratch
        write: cython.Py_ssize_t
        value: cython.ulonglong
        day: cython.ulonglong
        clock: cython.ulonglong
        if not self.packed:
            value = little(data, at, 8)
            day = value // 1000000
            clock = value % 1000000
            write = self._day(out, day // 10000, day // 100 % 100, day % 100)
            out[write] = 32
            if clock >= 240000:
                raise Unreadable
            return self._clock(out, write + 1, clock // 10000, clock // 100 % 100, clock % 100, 0)
        value = _big(data, at, 5)
        if not value >> 39:
            raise Unreadable
        value &= 0x7FFFFFFFFF
        day = value >> 17
        clock = value & 0x1FFFF
        write = self._day(out, (day >> 5) // 13, (day >> 5) % 13, day & 31)
        out[write] = 32
        if clock >> 12 > 23:
            raise Unreadable
        return self._clock(
            out, write + 1, clock >> 12, clock >> 6 & 63, clock & 63, _big(data, at + 5, (self.scale + 1) // 2)
        )

    @cython.cfunc
    def _timestamp(self, data: cython.p_uchar, at: cython.Py_ssize_t) -> bytes:
        """Unix seconds in 4 bytes (TIMESTAMP2: big-endian, then the fraction); 0 is the zero date. Text in UTC."""
        out: cython.p_uchar = self.scratch
        write: cython.Py_ssize_t
        seconds: cython.ulonglong
        fraction: cython.ulonglong = 0
        if self.packed:
            seconds = _big(data, at, 4)
            fraction = _big(data, at + 4, (self.scale + 1) // 2)
        else:
            seconds = little(data, at, 4)
        if seconds == 0 and fraction == 0:
            write = self._day(out, 0, 0, 0)
        else:
            # Gregorian calendar by eras of 400 years that begin on 1 March.
            days: cython.ulonglong = seconds // 86400 + 719468
            era: cython.ulonglong = days // 146097
            of_era: cython.ulonglong = days % 146097
            years: cython.ulonglong = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
            of_year: cython.ulonglong = of_era - (365 * years + years // 4 - years // 100)
            month: cython.ulonglong = (5 * of_year + 2) // 153
            day: cython.ulonglong = of_year - (153 * month + 2) // 5 + 1
            month = month + 3 if month < 10 else month - 9
            write = self._day(out, years + era * 400 + (1 if month <= 2 else 0), month, day)
        out[write] = 32
        seconds = seconds % 86400
        return self._clock(out, write + 1, seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)

    @cython.cfunc
    def _time(self, data: cython.p_uchar, at: cython.Py_ssize_t) -> bytes:
        """TIME2: an offset number of hour 10 bits, minute 6, second 6 and the fraction.

        The older form is the signed number hhmmss.
        """
        out: cython.p_uchar = self.scratch
        value: cython.longlong
        write: cython.Py_ssize_t = 1
        shift: cython.int = 0
        out[0] = 39
        if self.packed:
            shift = (self.scale + 1) // 2 * 8
            value = _big(data, at, 3 + shift // 8)
            offset: cython.longlong = 0x800000
            value -= offset << shift
        else:
            value = little(data, at, 3)
            if value >= 0x800000:
                value -= 0x1000000
        if value < 0:
            value = -value
            out[1] = 45
            write = 2
        if self.packed:
            clock: cython.longlong = value >> shift
            rest: cython.longlong = value - (clock << shift)
            return self._clock(out, write, clock >> 12, clock >> 6 & 63, clock & 63, rest)
        return self._clock(out, write, value // 10000, value // 100 % 100, value % 100, 0)
