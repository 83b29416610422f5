"""Turns the texts of a column, as a SELECT returns them, into an Arrow array of the DataFrame's type.

Most kinds are converted as a whole column; a text in another character set than UTF-8, a SET and what cannot be read
once for each different value. No value is rounded or cut: what does not fit raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.rows.characters.character_set import NoCharacter, character_set
from shardmerge.worker.binlog.rows.charsets import is_utf8
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, AddSuffix, Constant, PartitionId
from shardmerge.worker.datasource.arrow_library import pa, pc
from shardmerge.worker.datasource.plan.read_plan import FrameValue
from shardmerge.worker.datasource.values.parsed_values import DATE, DATETIME, TIME, parse_integers, parse_temporal
from shardmerge.worker.snapshot.source.text_columns import CutColumn

np: Any = numpy  # without types

_TEMPORAL = {
    ValueKind.DATE: (DATE, pa.date32()),
    ValueKind.TIME: (TIME, pa.duration("us")),
    ValueKind.DATETIME: (DATETIME, pa.timestamp("us")),
    ValueKind.TIMESTAMP: (DATETIME, pa.timestamp("us", tz="UTC")),
}
_INTEGERS = frozenset({ValueKind.INTEGER, ValueKind.BIT, ValueKind.YEAR})
_SHOWN = 64


def array_of(column: CutColumn) -> Any:
    """The texts of a column as an array, without a copy of the values."""
    marks = np.frombuffer(column.marks, dtype=np.uint8, count=column.rows)
    nulls = column.rows - int(np.count_nonzero(marks))
    valid = pa.py_buffer(np.packbits(marks, bitorder="little").tobytes()) if nulls else None
    values = pa.py_buffer(column.values).slice(0, column.used)
    offsets = pa.py_buffer(column.offsets)
    return pa.Array.from_buffers(pa.binary(), column.rows, [valid, offsets, values], nulls)


def texts_array(texts: Sequence[bytes | None]) -> Any:
    return pa.array(texts, pa.binary())


@dataclass(frozen=True, slots=True)
class ValueReader:
    """Reads the values of one column of a shard table. ``wanted``: the DataFrame's type. ``zero_is_null``: dates that
    do not exist are NULL. Raises UNREADABLE_VALUE, NO_CHARACTER, ID_OVERFLOW, ZERO_DATE, VALUE."""

    source: str
    table: Table
    value: FrameValue
    wanted: Any
    zero_is_null: bool

    def read(self, texts: Any) -> Any:
        mapping = self.value.mapping
        if isinstance(mapping, PartitionId):
            return self._fitted(self._partition_ids(texts, mapping))
        made = self._values(texts)
        if isinstance(mapping, AddPrefix):
            made = pc.binary_join_element_wise(pa.scalar(mapping.text), made, "")
        elif isinstance(mapping, AddSuffix):
            made = pc.binary_join_element_wise(made, pa.scalar(mapping.text), "")
        return self._fitted(made)

    def constant(self, rows: int) -> Any:
        mapping = self.value.mapping
        text = mapping.text if isinstance(mapping, Constant) else ""
        return pa.repeat(pa.scalar(text, self.wanted), rows)

    @property
    def _column(self) -> Column:
        return self.value.column.column

    def _values(self, texts: Any) -> Any:
        column = self._column
        kind = column.kind
        if kind in _INTEGERS:
            return self._integers(texts)
        if kind in _TEMPORAL:
            return self._temporal(texts, *_TEMPORAL[kind])
        if kind in (ValueKind.FLOAT, ValueKind.DOUBLE):
            return self._cast(texts, pa.float64())
        if kind is ValueKind.DECIMAL:
            return _as_text(texts) if pa.types.is_string(self.wanted) else self._cast(texts, self.wanted)
        if kind is ValueKind.ENUM:
            return self._each(texts, self._label)
        if kind is ValueKind.SET:
            return self._each(texts, self._members)
        if kind is ValueKind.JSON:
            return self._utf8(texts)
        if kind is ValueKind.STRING:
            return self._strings(texts)
        return texts

    def _fitted(self, made: Any) -> Any:
        """``made`` in the DataFrame's type, which holds all of its values."""
        if made.type == self.wanted:
            return made
        if pa.types.is_floating(made.type) and pa.types.is_float32(self.wanted):
            return made.cast(self.wanted, safe=False)  # FLOAT is read as DOUBLE: each value is one of 4 bytes
        if pa.types.is_integer(made.type) and pa.types.is_decimal(self.wanted):
            return made.cast(pa.decimal128(19, 0)).cast(self.wanted)
        return made.cast(self.wanted)

    def _integers(self, texts: Any) -> Any:
        if pa.types.is_decimal(self.wanted):
            return self._cast(texts, self.wanted)
        numbers, bad = parse_integers(*_buffers(texts), len(texts))
        if bad >= 0:
            raise self._unreadable(texts, bad)
        return _fixed(pa.int64(), texts, numbers)

    def _partition_ids(self, texts: Any, mapping: PartitionId) -> Any:
        numbers, bad = parse_integers(*_buffers(texts), len(texts))
        if bad < 0:
            found = np.frombuffer(numbers, dtype="<i8")
            wrong = np.flatnonzero((found < 0) | (found > mapping.last - mapping.prefix))
            bad = int(wrong[0]) if len(wrong) else -1
        if bad >= 0:
            raise errors.config.ID_OVERFLOW(
                source=self.source,
                schema=self.table.schema,
                table=self.table.name,
                column=self._column.name,
                value=texts[bad].as_py().decode("ascii", "replace"),
                bits=mapping.bits,
                at="",
            )
        merged: Any = np.frombuffer(numbers, dtype="<i8") | np.int64(mapping.prefix)
        return _fixed(pa.int64(), texts, merged.tobytes())

    def _temporal(self, texts: Any, kind: int, made: Any) -> Any:
        numbers, marks, missing, bad = parse_temporal(*_buffers(texts), len(texts), kind)
        if bad >= 0:
            raise self._unreadable(texts, bad)
        result = _fixed(made, texts, numbers)
        if missing < 0:
            return result
        if not self.zero_is_null:
            raise errors.read.ZERO_DATE(**self._where, value=texts[missing].as_py().decode("ascii", "replace"))
        absent = pa.array(np.frombuffer(marks, dtype=np.uint8).astype(bool))
        return pc.if_else(absent, pa.scalar(None, made), result)

    def _strings(self, texts: Any) -> Any:
        charset = self._column.charset
        if is_utf8(charset):
            return self._utf8(texts)
        characters = character_set(charset)
        if characters is None:
            raise self._no_value("character set", charset.encode())
        if characters.extends_ascii:
            try:
                made = _as_text(texts)
                if pc.all(pc.string_is_ascii(made)).as_py() is not False:
                    return made
            except pa.ArrowInvalid:
                pass  # bytes above 0x7F, which are no UTF-8
        return self._each(texts, lambda text: self._decoded(characters.decoded, text))

    def _utf8(self, texts: Any) -> Any:
        made = _as_text(texts)
        try:
            made.validate(full=True)
        except pa.ArrowInvalid:
            for row, text in enumerate(texts.to_pylist()):
                try:
                    (text or b"").decode()
                except UnicodeDecodeError:
                    raise self._unreadable(texts, row) from None
            raise
        return made

    def _decoded(self, decode: Callable[[bytes], str], text: bytes) -> str:
        try:
            return decode(text)
        except NoCharacter as wrong:
            raise errors.decode.NO_CHARACTER(
                source=self.source,
                schema=self.table.schema,
                table=self.table.name,
                column=self._column.name,
                charset=self._column.charset,
                code=wrong.code.hex().upper(),
                value=text[:_SHOWN].hex().upper(),
                at="",
            ) from None

    def _label(self, text: bytes) -> str:
        number = int(text)
        labels = self._column.labels
        if number > len(labels):
            raise self._no_value("label", text)
        return labels[number - 1] if number else ""

    def _members(self, text: bytes) -> str:
        mask = int(text)
        labels = self._column.labels
        if mask >> len(labels):
            raise self._no_value("labels", text)
        return ",".join(label for bit, label in enumerate(labels) if mask >> bit & 1)

    def _each(self, texts: Any, convert: Callable[[bytes], str]) -> Any:
        """Convert each different text once."""
        coded = texts.dictionary_encode()
        known = pa.array([convert(text) for text in coded.dictionary.to_pylist()], pa.string())
        return known.take(coded.indices)

    def _cast(self, texts: Any, made: Any) -> Any:
        try:
            return _as_text(texts).cast(made)
        except pa.ArrowInvalid:
            for row in range(len(texts)):
                try:
                    _as_text(texts.slice(row, 1)).cast(made)
                except pa.ArrowInvalid:
                    raise self._unreadable(texts, row) from None
            raise

    @property
    def _where(self) -> dict[str, str]:
        return {
            "source": self.source,
            "schema": self.table.schema,
            "table": self.table.name,
            "column": self._column.name,
        }

    def _unreadable(self, texts: Any, row: int) -> ShardmergeError:
        return self._no_value(str(self.wanted), texts[row].as_py())

    def _no_value(self, wanted: str, text: bytes) -> ShardmergeError:
        shown = repr(text[:_SHOWN])[1:]
        return errors.read.VALUE(**self._where, type=self._column.type_text, wanted=wanted, value=shown)


def _as_text(texts: Any) -> Any:
    """The same bytes as an array of text, which is not validated."""
    return texts.view(pa.string())


def _buffers(texts: Any) -> tuple[bytes, bytes]:
    """The offsets and the values, from the array's first element on."""
    _, offsets, values = texts.buffers()
    places = offsets.slice(4 * texts.offset, 4 * len(texts) + 4).to_pybytes() if offsets is not None else bytes(4)
    return places, b"" if values is None else values.to_pybytes()


def _fixed(made: Any, texts: Any, elements: bytes | bytearray) -> Any:
    """An array of ``elements``, NULL where ``texts`` is NULL."""
    valid = None
    if texts.null_count:
        valid = texts.is_valid().buffers()[1]
    return pa.Array.from_buffers(made, len(texts), [valid, pa.py_buffer(elements)], texts.null_count)
