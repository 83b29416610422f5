# cython: language_level=3, cdivision=True
"""Makes the SQL literal of a column's value, from the server's text of a SELECT or from a row image's bytes.

Both use the same functions, so that the same value makes the same bytes (worker/core/row_change.py, Literals). The
codec selects the function for the kind of its column: text_literals writes texts and binary values, numbers and
temporal the others. Integers of a row image are written here, because they are the most frequent values. Binary
formats: MySQL Internals Manual, "Rows Event"; sql/field.cc (pack) of both servers.

Compiled by Cython; plain Python where it is not compiled: C types are annotations, bytes are read by index. A codec
holds a scratch buffer: one thread at a time.
"""

from __future__ import annotations

import struct

import cython

from shardmerge.proto import errors
from shardmerge.worker.binlog.json.literals import literal_of_text, literal_of_value
from shardmerge.worker.binlog.json.partial_update import apply_diffs
from shardmerge.worker.binlog.json.scalars import BadJson
from shardmerge.worker.binlog.rows.characters.character_set import CharacterSet, NoCharacter, character_set
from shardmerge.worker.binlog.rows.charsets import affix_bytes, introducer, is_ascii_superset, is_utf8
from shardmerge.worker.binlog.rows.digits import Unreadable
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, AddSuffix, Constant, Mapping, PartitionId

if not cython.compiled:
    from shardmerge.worker.binlog.little_endian import little
    from shardmerge.worker.binlog.rows.digits import big, cut, put_digits
    from shardmerge.worker.binlog.rows.numbers import (
        decimal_literal,
        number_literal,
        put_number,
        put_partition_id,
        real_literal,
    )
    from shardmerge.worker.binlog.rows.temporal import (
        put_date,
        put_datetime,
        put_temporal_text,
        put_time,
        put_timestamp,
    )
    from shardmerge.worker.binlog.rows.text_literals import put_hexadecimal, put_quoted

_float_of = struct.Struct("<f").unpack
_double_of = struct.Struct("<d").unpack
_NULL = cython.declare(bytes, b"NULL")

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


@cython.final
@cython.cclass
class ColumnCodec:
    """One column of one shard table: its values as literals, plain or mapped.

    ``fixed``: bytes of a value in a row image, or -1 when a length of ``length_bytes`` bytes precedes it; set by
    :meth:`bind`. ``slot``: index among the written columns, -1 when the column is not written; ``key_slot`` likewise.
    ``absent``: the literal of an absent value: NULL, or that of a Constant, which has no value in any image.
    ``as_utf8``: (mapped) texts for the target are quoted UTF-8, whatever the column's character set; texts before
    mapping, which the source's server reads, are not. ``in_key``: the column belongs to the key at the target.
    """

    def __init__(
        self,
        table: Table,
        column: Column,
        slot: int,
        key_slot: int,
        mapping: Mapping | None,
        source: str,
        as_utf8: bool = False,
        in_key: bool = False,
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
        self.source_quotable = False
        self.source_only_ascii = False
        self.only_ascii = False
        self.characters: CharacterSet | None = None
        self.one_code = False
        self.before = b""
        self.after = b""
        self.labels: list[bytes] = []
        self.scratch = bytearray(_SCRATCH)
        self.column = column
        self.table = table
        self.source = source
        if column.type_text.startswith("year(2)"):
            raise self.refused("two digits do not determine the century")
        self._read_type(as_utf8, in_key)
        self._read_mapping(mapping)

    def _read_type(self, as_utf8: bool, in_key: bool) -> None:
        column = self.column
        if column.kind == ValueKind.STRING:
            try:
                self.introducer = introducer(column.charset)
                self.only_ascii = self.introducer != b""
                self.quotable = not self.only_ascii or is_ascii_superset(column.charset)
            except ValueError:
                raise self.refused("its character set is not known") from None
            self.source_quotable = self.quotable
            self.source_only_ascii = self.only_ascii
            if as_utf8 and not is_utf8(column.charset):
                self._read_characters(in_key)
        elif column.kind in (ValueKind.ENUM, ValueKind.SET):
            self.labels = [label.encode("utf-8", "surrogateescape") for label in column.labels]
            if column.kind == ValueKind.ENUM:
                self.labels = [self.quoted(label) for label in self.labels]

    def _read_mapping(self, mapping: Mapping | None) -> None:
        column = self.column
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
            affix = affix_bytes(mapping.text, "utf8mb4" if self.characters is not None else column.charset)
            if affix is None:
                raise self.refused(f"{mapping.text!r} cannot be written in character set {column.charset}")
            if isinstance(mapping, AddPrefix):
                self.before = affix
            else:
                self.after = affix

    def bind(self, fixed: int, length_bytes: int, packed: bool, precision: int, scale: int) -> None:
        """Set the format of values in a row image. ``packed``: the temporal types' newer format, with fractions.

        ``precision``: digits of DECIMAL; ``scale``: its fraction digits, or those of a temporal type.
        """
        self.fixed = fixed
        self.length_bytes = length_bytes
        self.packed = packed
        self.precision = precision
        self.scale = scale

    def bind_json(self, old: bool) -> None:
        """The values are MySQL's binary JSON. ``old``: of a MySQL 5.7 (see
        shardmerge.worker.binlog.json.binary.json_text)."""
        self.is_json = True
        self.old_json = old

    def _read_characters(self, in_key: bool) -> None:
        found = character_set(self.column.charset)
        if found is None:
            raise self.refused("its character set is not known")
        self.characters = found
        self.only_ascii = True
        self.quotable = found.extends_ascii
        self.one_code = in_key and not found.is_injective

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

    def no_character(self, value: bytes, code: bytes) -> errors.ShardmergeError:
        """The coded error for a text with bytes, ``code``, that are no character; at most 64 bytes are shown."""
        return errors.decode.NO_CHARACTER(
            source=self.source,
            schema=self.table.schema,
            table=self.table.name,
            column=self.column.name,
            charset=self.column.charset,
            code=code.hex().upper(),
            value=value[:64].hex().upper(),
            at="",
        )

    def second_code(self, value: bytes, common: bytes) -> errors.ShardmergeError:
        """The coded error for a key of which another key, ``common``, is the same text."""
        return errors.decode.SECOND_CODE(
            source=self.source,
            schema=self.table.schema,
            table=self.table.name,
            column=self.column.name,
            charset=self.column.charset,
            value=value[:64].hex().upper(),
            common=common[:64].hex().upper(),
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
        data: cython.p_uchar = text
        size: cython.Py_ssize_t = len(text)
        out: cython.p_uchar = self._room(2 * size + 2)
        return cut(out, 0, put_quoted(out, 0, data, 0, size, False))

    @cython.ccall
    def of_text(self, text: bytes | None, mapped: cython.bint) -> bytes:
        """The literal of the server's text for a value (None: NULL), as the select expressions return it.

        Raises UNREADABLE_VALUE, NO_CHARACTER, SECOND_CODE, ID_OVERFLOW.
        """
        if text is None or self.constant:
            return self.absent
        try:
            return self._of_text(text, mapped)
        except (Unreadable, BadJson, OverflowError):  # the last: an index or mask of more than 64 bits
            raise self.unreadable(text) from None

    @cython.cfunc
    def _of_text(self, text: bytes, mapped: cython.bint) -> bytes:
        data: cython.p_uchar = text
        size: cython.Py_ssize_t = len(text)
        kind: cython.int = self.kind
        if kind == _STRING:
            return self._string(data, 0, size, mapped)
        if kind == _INTEGER:
            plain: bytes = number_literal(text, True, False)
            if mapped and self.partition:
                return self._partition(plain)
            return plain
        if kind == _BINARY or kind == _GEOMETRY or kind == _VECTOR:
            return self._hexadecimal(data, 0, size, self.pad, b"X'")
        if kind == _DECIMAL:
            return number_literal(text, True, True)
        if kind == _BIT or kind == _YEAR:
            return number_literal(text, False, False)
        if kind == _FLOAT or kind == _DOUBLE:
            try:
                return real_literal(float(text))
            except ValueError:
                raise Unreadable from None
        if kind == _ENUM:
            return self._label(int(number_literal(text, False, False)))
        if kind == _SET:
            return self._members(int(number_literal(text, False, False)))
        if kind == _JSON:
            return literal_of_text(text)
        out: cython.p_uchar = self.scratch
        write: cython.Py_ssize_t = put_temporal_text(out, 0, data, 0, size)
        if write < 0:
            raise Unreadable
        return cut(out, 0, write)

    @cython.cfunc
    def of_wire(
        self, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, mapped: cython.bint
    ) -> bytes:
        """The literal of the bytes start..stop of a row image: ``fixed`` bytes if that is set."""
        kind: cython.int = self.kind
        size: cython.Py_ssize_t = stop - start
        if kind == _INTEGER:
            return self._integer(data, start, size, mapped)
        if kind == _STRING:
            return self._string(data, start, stop, mapped)
        out: cython.p_uchar = self.scratch
        if kind == _DECIMAL:
            return decimal_literal(out, data, start, self.precision, self.scale)
        if kind == _TIMESTAMP:
            return cut(out, 0, put_timestamp(out, data, start, self.packed, self.scale))
        if kind == _DATETIME:
            return cut(out, 0, put_datetime(out, data, start, self.packed, self.scale))
        if kind == _DATE:
            return cut(out, 0, put_date(out, data, start))
        if kind == _TIME:
            return cut(out, 0, put_time(out, data, start, self.packed, self.scale))
        if kind == _BINARY:
            if self.pad and size > self.pad:
                raise Unreadable
            return self._hexadecimal(data, start, stop, self.pad, b"X'")
        if kind == _ENUM:
            return self._label(little(data, start, size))
        if kind == _SET:
            return self._members(little(data, start, size))
        if kind == _BIT:
            return cut(out, 0, put_digits(out, 0, big(data, start, size)))
        if kind == _YEAR:
            return cut(out, 0, put_digits(out, 0, 1900 + data[start] if data[start] else 0))
        if kind == _DOUBLE:
            return real_literal(_double_of(data[start:stop])[0])
        if kind == _FLOAT:
            return real_literal(_float_of(data[start:stop])[0])
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
                return literal_of_value(cut(data, start, stop), 0, stop - start, self.old_json)
            text: bytes = apply_diffs(cut(data, self.old_start, self.old_stop), cut(data, start, stop))
            return literal_of_text(text)
        except BadJson:
            raise Unreadable from None

    @cython.cfunc
    def most_bytes(self) -> cython.Py_ssize_t:
        """The most bytes that :meth:`put_wire` writes for the current value; 0: it does not write this kind."""
        if self.kind == _INTEGER or self.start < 0:
            return 0 if self.constant else 24
        if self.kind == _STRING and self.quotable and not self.mapped:
            return 2 * (self.stop - self.start) + 2
        return 0

    @cython.cfunc
    def put_wire(self, out: cython.p_uchar, write: cython.Py_ssize_t, data: cython.p_uchar) -> cython.Py_ssize_t:
        """Write the (mapped) literal of the current value, as :meth:`of_wire` makes it; returns the index after it.

        Only for the most common kinds, and 7-bit text of other character sets than the connection's; -1: use of_wire.
        """
        if self.start < 0:
            out[write] = 78
            out[write + 1] = 85
            out[write + 2] = 76
            out[write + 3] = 76
            return write + 4
        if self.kind == _INTEGER:
            return self._put_integer(out, write, data, self.start, self.stop - self.start, True)
        return put_quoted(out, write, data, self.start, self.stop, self.only_ascii)

    @cython.cfunc
    def most_text_bytes(self, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The most bytes that :meth:`put_text` writes for ``size`` bytes of text; 0: it does not write this kind."""
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
        """Write the (mapped) literal of the text start..stop, as :meth:`of_text` makes it; returns the index after it.

        Only for the most common kinds, whose literal is little more than the text; -1: use of_text, which also raises
        the errors.
        """
        kind: cython.int = self.kind
        if kind == _STRING:
            return put_quoted(out, write, data, start, stop, self.only_ascii)
        if kind == _INTEGER:
            if self.partition:
                return put_partition_id(out, write, data, start, stop, self.id_prefix, self.id_most)
            return put_number(out, write, data, start, stop, True, False)
        if kind == _DECIMAL:
            return put_number(out, write, data, start, stop, True, True)
        if kind == _BIT or kind == _YEAR:
            return put_number(out, write, data, start, stop, False, False)
        return put_temporal_text(out, write, data, start, stop)

    @cython.cfunc
    def _integer(
        self, data: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, mapped: cython.bint
    ) -> bytes:
        out: cython.p_uchar = self.scratch
        return cut(out, 0, self._put_integer(out, 0, data, at, size, mapped))

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
        """Write an integer's digits; returns the index after them."""
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
        return put_digits(out, write, value)

    @cython.cfunc
    def _partition(self, digits: bytes) -> bytes:
        value: int = int(digits)
        if value < 0 or value > self.id_most:
            raise self.overflow(digits.decode("ascii"))
        return b"%d" % (self.id_prefix | value)

    @cython.cfunc
    def _label(self, index: cython.ulonglong) -> bytes:
        """ENUM: 0 is the server's '' for an invalid value."""
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
        text: bytes
        if mapped and self.characters is not None:
            return self._utf8(self.characters, cut(data, start, stop))
        if mapped and self.mapped:
            text = self._mapped_text(cut(data, start, stop))
            return self._text_literal(text, 0, len(text))
        return self._text_literal(data, start, stop)

    @cython.cfunc
    def _mapped_text(self, text: bytes) -> bytes:
        if self.partition:
            if not text.isdigit():
                raise Unreadable
            return self._partition(text)
        return self.before + text + self.after

    @cython.cfunc
    def _utf8(self, characters: CharacterSet, value: bytes) -> bytes:
        """The (mapped) literal of a text for a target that gets UTF-8."""
        try:
            found: str = characters.decoded(value)
        except NoCharacter as wrong:
            raise self.no_character(value, wrong.code) from None
        if self.one_code:
            # Two keys at the source must never be one key here: the rows of both would be taken for one.
            common: bytes | None = characters.encoded(found)
            if common != value:
                raise self.second_code(value, common or b"")
        text: bytes = found.encode()
        return self.quoted(self._mapped_text(text) if self.mapped else text)

    @cython.cfunc
    def _text_literal(self, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytes:
        if self.source_quotable:
            out: cython.p_uchar = self._room(2 * (stop - start) + 2)
            write: cython.Py_ssize_t = put_quoted(out, 0, data, start, stop, self.source_only_ascii)
            if write >= 0:
                return cut(out, 0, write)
        return self._hexadecimal(data, start, stop, 0, self.introducer)

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
    def _hexadecimal(
        self,
        data: cython.p_uchar,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        pad: cython.Py_ssize_t,
        opening: bytes,
    ) -> bytes:
        """``X'…'`` after its introducer, padded with zero bytes to ``pad`` bytes."""
        size: cython.Py_ssize_t = stop - start
        if size < pad:
            size = pad
        out: cython.p_uchar = self._room(2 * size + len(opening) + 1)
        return cut(out, 0, put_hexadecimal(out, opening, data, start, stop, size))
