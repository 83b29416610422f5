# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Writes the literals of a scanned row image, and computes the lane of its key.

Compiled by Cython (types of the class in worker/binlog/rows/image_literals.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

import cython

from shardmerge.worker.binlog.crc32 import Crc32
from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.binlog.rows.digits import Unreadable
from shardmerge.worker.binlog.rows.image_scanner import ImageScanner
from shardmerge.worker.binlog.rows.literal_buffer import LiteralBuffer
from shardmerge.worker.core.lane_hash import Bucket, crc_seed, hash_indexes
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table_plan import TablePlan

if not cython.compiled:
    from shardmerge.worker.binlog.rows.digits import cut

_NULL = cython.declare(bytes, b"NULL")
_CRC = cython.declare(Crc32, Crc32())


@cython.cclass
class ImageLiterals(ImageScanner):
    """Writes the values of the image that was scanned last. ``bucket``: the own lane."""

    def __init__(self, plan: TablePlan, codecs: list[ColumnCodec], bucket: Bucket) -> None:
        ImageScanner.__init__(self, codecs)
        self.plan = plan
        by_slot = {codec.slot: codec for codec in codecs if codec.slot >= 0}
        for slot, written in enumerate(plan.columns):
            if written.is_constant:
                by_slot[slot] = ColumnCodec(plan.table, written.column, slot, -1, written.mapping, plan.source)
        self.by_slot = by_slot
        self.written = [by_slot[slot] for slot in sorted(by_slot)]
        self.key_codecs = [by_slot[slot] for slot in plan.key]
        self.source_key_codecs = [by_slot[slot] for slot in plan.source_key]
        hashed = hash_indexes(plan)
        self.hashed = bytes(at in hashed for at in range(len(plan.key)))
        self.seed = crc_seed(plan)
        self.lane = bucket.lane
        self.lanes = bucket.lanes
        self.crc = 0
        self.buffer = LiteralBuffer()
        # Filled for each row and copied: cheaper than a new list each time.
        self.values: list[bytes] = [_NULL] * len(self.written)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _mine(self) -> cython.bint:
        """Whether the key that was written last belongs to the own lane."""
        return self.lanes == 1 or self.crc % self.lanes == self.lane

    @cython.cfunc
    def _keep_key(self) -> cython.int:
        """Remember the byte ranges of the scanned image's key."""
        codecs: list[ColumnCodec] = self.key_codecs
        codec: ColumnCodec
        i: cython.Py_ssize_t
        for i in range(len(codecs)):
            codec = codecs[i]
            codec.kept_start = codec.start
            codec.kept_stop = codec.stop
        return 0

    @cython.cfunc
    def _same_key(self, data: cython.p_uchar) -> cython.bint:
        """Whether the scanned image's key has the same bytes as the remembered key."""
        codecs: list[ColumnCodec] = self.key_codecs
        codec: ColumnCodec
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t
        for i in range(len(codecs)):
            codec = codecs[i]
            if codec.start < 0 or codec.kept_start < 0:
                return False
            if codec.stop - codec.start != codec.kept_stop - codec.kept_start:
                return False
            for at in range(codec.stop - codec.start):
                if data[codec.start + at] != data[codec.kept_start + at]:
                    return False
        return True

    @cython.cfunc
    def _literal(self, codec: ColumnCodec, data: cython.p_uchar, mapped: cython.bint) -> bytes:
        """The literal of the scanned value."""
        if codec.start < 0:
            return codec.absent
        try:
            return codec.of_wire(data, codec.start, codec.stop, mapped)
        except Unreadable:
            raise codec.unreadable(cut(data, codec.start, codec.stop)) from None

    @cython.cfunc
    def _literals(self, data: cython.p_uchar) -> Literals:
        """The scanned image's written values."""
        self._fill(self.written, self.values, data, True)
        return tuple(self.values)

    @cython.cfunc
    def _source_key(self, data: cython.p_uchar) -> Literals:
        """The scanned image's key before mapping."""
        values: list[bytes] = [_NULL] * len(self.source_key_codecs)
        self._fill(self.source_key_codecs, values, data, False)
        return tuple(values)

    @cython.cfunc
    def _fill(
        self, codecs: list[ColumnCodec], values: list[bytes], data: cython.p_uchar, mapped: cython.bint
    ) -> cython.int:
        """Write the codecs' literals to ``values``, which has as many items."""
        codec: ColumnCodec
        i: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        try:
            for at in range(len(codecs)):
                i = at
                codec = codecs[at]
                values[at] = codec.absent if codec.start < 0 else codec.of_wire(data, codec.start, codec.stop, mapped)
        except Unreadable:
            codec = codecs[i]
            raise codec.unreadable(cut(data, codec.start, codec.stop)) from None
        return 0

    @cython.cfunc
    def _cut(self, size: cython.Py_ssize_t) -> bytes:
        """A copy of the first ``size`` bytes that were written last."""
        return self.buffer.cut(size)

    @cython.cfunc
    def _joined(self, data: cython.p_uchar) -> bytes:
        """The scanned image's literals, separated by commas."""
        return self._cut(self._join(self.written, data, False))

    @cython.cfunc
    def _key(self, data: cython.p_uchar) -> cython.Py_ssize_t:
        """Write the scanned image's key (mapped), likewise; returns its size. Sets ``self.crc`` to the hash for its
        lane."""
        return self._join(self.key_codecs, data, self.lanes > 1)

    @cython.cfunc
    def _join(self, codecs: list[ColumnCodec], data: cython.p_uchar, hashing: cython.bint) -> cython.Py_ssize_t:
        """Write the literals into ``self.buffer``; returns the number of bytes."""
        codec: ColumnCodec
        hashed: cython.p_uchar = self.hashed
        crc: Crc32 = _CRC
        write: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        most: cython.Py_ssize_t
        buffer: LiteralBuffer = self.buffer
        out: cython.p_uchar = buffer.start()
        i: cython.Py_ssize_t
        if hashing:
            self.crc = self.seed
        for i in range(len(codecs)):
            codec = codecs[i]
            # There is always one byte more than needed, for the comma.
            if i:
                out[write] = 44
                write += 1
            stop = -1
            most = codec.most_bytes()
            if most:
                if buffer.size - write <= most:
                    out = buffer.room(write, most)
                stop = codec.put_wire(out, write, data)
            if stop < 0:
                stop = buffer.put(write, self._literal(codec, data, True))
                out = buffer.held
            if hashing and hashed[i]:
                self.crc = crc.of(out, write, stop, self.crc)
            write = stop
        return write
