# cython: language_level=3
"""Reads the rows of a SELECT of a table with a transform. Compiled by Cython; plain Python where it is not compiled."""

from __future__ import annotations

from collections.abc import Sequence

import cython

from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.binlog.rows.literal_buffer import LiteralBuffer
from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.binlog.rows.uncomputed.open_columns import input_places, open_columns
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.uncomputed import Parts, UncomputedRow

RawRow = list[bytes | None]
"""The values of a row as the server sends them, None for NULL."""

# ValueKind as C integers.
_BIT = cython.declare(cython.int, 5)
_YEAR = cython.declare(cython.int, 10)
_STRING = cython.declare(cython.int, 11)


@cython.final
@cython.cclass
class UncomputedTexts:
    """The rows of one shard table. ``read``: the plan by which the rows are read, with every column; ``plan``: of the
    target's rows. One thread at a time."""

    def __init__(self, read: TablePlan, plan: TablePlan) -> None:
        self.reading = RowWriter(read, plan.source).codecs
        columns = open_columns(read, plan, self.reading)
        self.columns: list[ColumnCodec | None] = [codec for codec, _ in columns]
        self.places: list[int] = [at for _, at in columns]
        self.inputs: list[int] = input_places(read, plan)
        self.key: tuple[int, ...] = read.source_key
        self.written = LiteralBuffer()

    def rows(self, found: Sequence[RawRow]) -> list[UncomputedRow]:
        """Raises what ColumnCodec.of_text raises."""
        return [self._row(values) for values in found]

    @cython.cfunc
    def _row(self, values: RawRow) -> UncomputedRow:
        inputs: list[bytes | None] = []
        keys: list[bytes] = []
        codec: ColumnCodec
        place: cython.Py_ssize_t
        text: bytes | None
        literal: bytes
        kind: cython.int
        for place in self.inputs:
            codec = self.reading[place]
            text = values[place]
            kind = codec.kind
            if text is None or kind == _STRING:
                inputs.append(text)
                continue
            literal = codec.of_text(text, False)
            if kind <= _BIT or kind == _YEAR:
                inputs.append(literal)  # a number: its literal is its text
            else:
                inputs.append(text_of_literal(literal))
        for place in self.key:
            codec = self.reading[place]
            keys.append(codec.of_text(values[place], False))
        row: UncomputedRow = UncomputedRow.__new__(UncomputedRow)
        row.inputs = tuple(inputs)
        row.key = tuple(keys)
        row.size = 0
        for text in inputs:
            if text is not None:
                row.size += len(text)
        row.parts = self._parts(row, values)
        return row

    @cython.cfunc
    def _parts(self, row: UncomputedRow, values: RawRow) -> Parts:
        """The row's literals for the target, separated by commas, cut where a computed value belongs."""
        found: list[bytes] = []
        columns: list[ColumnCodec | None] = self.columns
        column: ColumnCodec | None
        codec: ColumnCodec
        text: bytes | None
        plain: bytes
        data: cython.p_uchar
        write: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        most: cython.Py_ssize_t
        place: cython.Py_ssize_t
        written: LiteralBuffer = self.written
        out: cython.p_uchar = written.start()
        i: cython.Py_ssize_t
        for i in range(len(columns)):
            # There is always one byte more than needed, for the comma.
            if i:
                out[write] = 44
                write += 1
            column = columns[i]
            if column is None:
                found.append(written.cut(write))
                row.size += write
                write = 0
                continue
            codec = column
            place = self.places[i]
            text = None if place < 0 else values[place]
            stop = -1
            if text is not None:
                plain = text
                most = codec.most_text_bytes(len(plain))
                if most:
                    if written.size - write <= most:
                        out = written.room(write, most)
                    data = plain
                    stop = codec.put_text(out, write, data, 0, len(plain))
            if stop < 0:
                stop = written.put(write, codec.of_text(text, True))
                out = written.held
            write = stop
        found.append(written.cut(write))
        row.size += write
        return tuple(found)
