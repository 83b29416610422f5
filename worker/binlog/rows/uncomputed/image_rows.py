# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Reads one lane's share of the row images of a table with a transform.

Format: MySQL Internals Manual, "Rows Event". Compiled by Cython (types of the class in
worker/binlog/rows/uncomputed/image_rows.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

import cython

from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.binlog.rows.image_literals import ImageLiterals
from shardmerge.worker.binlog.rows.image_scanner import BadImage
from shardmerge.worker.binlog.rows.literal_buffer import LiteralBuffer
from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.binlog.rows.uncomputed.open_columns import input_places, open_columns
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.lane_hash import Bucket, crc_seed, hash_indexes
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.uncomputed import Inputs, Parts, UncomputedChange, UncomputedRow

if not cython.compiled:
    from shardmerge.worker.binlog.rows.digits import cut

_INSERT = cython.declare(cython.int, 1)
_UPDATE = cython.declare(cython.int, 2)
_DELETE = cython.declare(cython.int, 3)
# ValueKind as C integers.
_BIT = cython.declare(cython.int, 5)
_YEAR = cython.declare(cython.int, 10)
_STRING = cython.declare(cython.int, 11)


@cython.final
@cython.cclass
class UncomputedReader(ImageLiterals):
    """The rows of one shard table's events. ``read``: the plan by which the rows are read, with every column; ``plan``:
    of the target's rows. ``codecs``: one bound codec per column of the source's table."""

    def __init__(self, read: TablePlan, plan: TablePlan, codecs: list[ColumnCodec], bucket: Bucket) -> None:
        ImageLiterals.__init__(self, read, codecs, bucket)
        reading = self.written
        columns = open_columns(read, plan, reading)
        self.target = plan
        self.columns: list[ColumnCodec | None] = [codec for codec, _ in columns]
        self.inputs = [reading[at] for at in input_places(read, plan)]
        # Filled for each row and copied: cheaper than new lists each time.
        self.input_values: list[bytes | None] = [None] * len(self.inputs)
        self.part_values: list[bytes] = [b""] * (1 + self.columns.count(None))
        # Codecs of mapped columns, which get the places of their values from those that were scanned.
        self.copied: list[ColumnCodec] = []
        self.copies: list[ColumnCodec] = []
        for codec, at in columns:
            if codec is not None and at >= 0 and codec is not reading[at]:
                scanned: ColumnCodec = reading[at]
                codec.bind(scanned.fixed, scanned.length_bytes, scanned.packed, scanned.precision, scanned.scale)
                self.copied.append(scanned)
                self.copies.append(codec)
        # The key at the target.
        self.key_codecs = [codec for codec in (self.columns[slot] for slot in plan.key) if codec is not None]
        hashed = hash_indexes(plan)
        self.hashed = bytes(at in hashed for at in range(len(plan.key)))
        self.seed = crc_seed(plan)

    @cython.cfunc
    def pick(
        self,
        events: bytes,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        kind: cython.int,
        pos: cython.longlong,
        batch: Batch,
    ) -> cython.int:
        """Add the lane's share of a rows event to the staged changes of ``batch``; other rows are skipped.

        ``at``..``end``: the event's bytes from the column count to the last image; ``kind``: ChangeKind; ``pos``: of
        the event's end in the source's file. Raises BadImage, MissingColumn, and the codecs' errors for values that
        cannot be read.
        """
        data: cython.p_uchar = events
        first: cython.Py_ssize_t = self._open(events, at, end, kind)
        second: cython.Py_ssize_t = self._second(first, kind)
        first_present: cython.Py_ssize_t = self._present(data, first)
        second_present: cython.Py_ssize_t = self._present(data, second)
        start: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        size: cython.Py_ssize_t = 0
        owns_before: cython.bint
        owns_after: cython.bint
        change: UncomputedChange
        before: UncomputedRow | None
        after: UncomputedRow | None
        before_key: bytes
        after_key: bytes
        while self.at < end:
            start = self.at
            before = after = None
            before_key = after_key = b""
            owns_before = owns_after = False
            if kind != _INSERT:
                self._scan(data, end, first, first_present)
                self._copy()
                size = self._key(data)
                owns_before = self._mine()
                if owns_before:
                    before_key = self._cut(size)
                    before = self._row(data, False)
            if kind == _UPDATE:
                self._keep_key()
            if kind != _DELETE:
                self._scan_after(events, end, second, second_present)
                self._copy()
            if self.at == start:
                raise BadImage("a row image without a byte")
            if kind == _INSERT or (kind == _UPDATE and not self._same_key(data)):
                size = self._key(data)
                owns_after = self._mine()
                if owns_before or owns_after:
                    after_key = self._cut(size)
            elif kind == _UPDATE:
                # Most updates do not change the bytes of the key: no need to write them twice.
                owns_after = owns_before
                after_key = before_key
            if not owns_before and not owns_after:
                continue
            if kind != _DELETE:
                after = self._row(data, True)
            if kind == _UPDATE and before is None:
                # The row comes from another lane's key: now its image before the change is needed, too.
                stop = self.at
                self.at = start
                self._scan(data, end, first, first_present)
                self._copy()
                before_key = self._cut(self._key(data))
                before = self._row(data, False)
                self.at = stop
            # Without the constructor, whose arguments would become Python objects.
            change = UncomputedChange.__new__(UncomputedChange)
            change.plan = self.target
            change.file = batch.file
            change.pos = pos
            change.before = before
            change.after = after
            change.before_key = before_key
            change.after_key = after_key
            change.owns_before = owns_before
            change.owns_after = owns_after
            change.size = 0
            if before is not None:
                change.size += before.size
            if after is not None:
                change.size += after.size
            change.has_before = False
            change.image = None
            batch.staged.append(change)
        return 0

    @cython.cfunc
    def _copy(self) -> cython.int:
        """Give the places of the scanned values to the codecs of mapped columns."""
        scanned: ColumnCodec
        codec: ColumnCodec
        i: cython.Py_ssize_t
        copies: list[ColumnCodec] = self.copies
        for i in range(len(copies)):
            scanned = self.copied[i]
            codec = copies[i]
            codec.start = scanned.start
            codec.stop = scanned.stop
        return 0

    @cython.cfunc
    def _row(self, data: cython.p_uchar, with_parts: cython.bint) -> UncomputedRow:
        """The scanned row."""
        row: UncomputedRow = UncomputedRow.__new__(UncomputedRow)
        row.size = 0
        row.key = self._source_key(data)
        row.inputs = self._inputs(row, data)
        row.parts = self._parts(row, data) if with_parts else ()
        return row

    @cython.cfunc
    def _inputs(self, row: UncomputedRow, data: cython.p_uchar) -> Inputs:
        """The texts of the columns that the expressions use."""
        values: list[bytes | None] = self.input_values
        inputs: list[ColumnCodec] = self.inputs
        codec: ColumnCodec
        text: bytes
        kind: cython.int
        i: cython.Py_ssize_t
        for i in range(len(inputs)):
            codec = inputs[i]
            kind = codec.kind
            if codec.start < 0:
                values[i] = None
                continue
            if kind == _STRING:
                text = cut(data, codec.start, codec.stop)
            else:
                text = self._literal(codec, data, False)
                if kind > _BIT and kind != _YEAR:  # else a number: its literal is its text
                    text = text_of_literal(text) or b""
            values[i] = text
            row.size += len(text)
        return tuple(values)

    @cython.cfunc
    def _parts(self, row: UncomputedRow, data: cython.p_uchar) -> Parts:
        """The row's literals for the target, separated by commas, cut where a computed value belongs."""
        parts: list[bytes] = self.part_values
        columns: list[ColumnCodec | None] = self.columns
        buffer: LiteralBuffer = self.buffer
        column: ColumnCodec | None
        codec: ColumnCodec
        write: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        most: cython.Py_ssize_t
        out: cython.p_uchar = buffer.start()
        part: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        for i in range(len(columns)):
            # There is always one byte more than needed, for the comma.
            if i:
                out[write] = 44
                write += 1
            column = columns[i]
            if column is None:
                parts[part] = buffer.cut(write)
                part += 1
                row.size += write
                write = 0
                continue
            codec = column
            stop = -1
            most = codec.most_bytes()
            if most:
                if buffer.size - write <= most:
                    out = buffer.room(write, most)
                stop = codec.put_wire(out, write, data)
            if stop < 0:
                stop = buffer.put(write, self._literal(codec, data, True))
                out = buffer.held
            write = stop
        parts[part] = buffer.cut(write)
        row.size += write
        return tuple(parts)
