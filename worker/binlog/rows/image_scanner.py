# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Finds the values of a row image in its event.

Format: MySQL Internals Manual, "Rows Event". Compiled by Cython (types of the class in
worker/binlog/rows/image_scanner.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

import cython

from shardmerge.worker.binlog.json.partial_update import partial_head
from shardmerge.worker.binlog.json.scalars import BadJson
from shardmerge.worker.binlog.rows.column_codec import ColumnCodec

if not cython.compiled:
    from shardmerge.worker.binlog.little_endian import little

_UPDATE = cython.declare(cython.int, 2)  # ChangeKind


class BadImage(Exception):
    """A row image that does not fit its event or its table."""


class MissingColumn(Exception):
    """A written column is absent from the row images; the argument is its name."""


@cython.cclass
class ImageScanner:
    """Steps through the row images of one shard table's events.

    ``codecs``: one bound codec per column of the source's table; the scanner sets the ranges of their values in them.
    ``partial``: the events are PARTIAL_UPDATE_ROWS, whose after images may hold changes instead of JSON values; set
    before each event.
    """

    def __init__(self, codecs: list[ColumnCodec]) -> None:
        self.codecs = codecs
        self.at = 0
        self.partial = False
        self.jsons = [codec for codec in codecs if codec.is_json]

    @cython.cfunc
    def _open(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, kind: cython.int
    ) -> cython.Py_ssize_t:
        """The start of the first bitmap, after the column count (a length-encoded integer; a table has at most 4096
        columns).

        Sets ``self.at`` to the byte after the bitmaps.
        """
        data: cython.p_uchar = events
        count: cython.Py_ssize_t = len(self.codecs)
        width: cython.Py_ssize_t = (count + 7) // 8
        stated: cython.Py_ssize_t = -1
        if at < 0 or end > len(events):
            raise BadImage("rows lie outside the event")
        if at < end and data[at] < 251:
            stated = data[at]
            at += 1
        elif at + 3 <= end and data[at] == 252:
            stated = data[at + 1] | data[at + 2] << 8
            at += 3
        if stated != count:
            raise BadImage("the rows event's column count is not that of its table map")
        self.at = at + (2 if kind == _UPDATE else 1) * width
        if self.at > end:
            raise BadImage("the column bitmaps exceed the event")
        return at

    @cython.cfunc
    @cython.exceptval(check=False)
    def _second(self, first: cython.Py_ssize_t, kind: cython.int) -> cython.Py_ssize_t:
        """The bitmap of after images."""
        return first + (len(self.codecs) + 7) // 8 if kind == _UPDATE else first

    @cython.cfunc
    def _present(self, data: cython.p_uchar, bitmap: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """How many columns the images have; all written columns must be among them."""
        present: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        codecs: list[ColumnCodec] = self.codecs
        codec: ColumnCodec
        for i in range(len(codecs)):
            if data[bitmap + (i >> 3)] >> (i & 7) & 1:
                present += 1
            else:
                codec = codecs[i]
                if codec.slot >= 0:
                    raise MissingColumn(codec.name())
        return present

    @cython.cfunc
    def _scan(
        self, data: cython.p_uchar, end: cython.Py_ssize_t, bitmap: cython.Py_ssize_t, present: cython.Py_ssize_t
    ) -> cython.int:
        """Find each codec's value in the image at ``self.at``: its ``start`` (-1: NULL), ``stop``; move after it.

        The values are complete, not partial changes.
        """
        codecs: list[ColumnCodec] = self.codecs
        codec: ColumnCodec
        nulls: cython.Py_ssize_t = self.at
        at: cython.Py_ssize_t = nulls + (present + 7) // 8
        size: cython.Py_ssize_t
        length: cython.ulonglong
        bit: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        if at > end:
            raise BadImage("a row image exceeds the event")
        jsons: list[ColumnCodec] = self.jsons
        for i in range(len(jsons)):
            codec = jsons[i]
            codec.old_start = -1
        for i in range(len(codecs)):
            codec = codecs[i]
            codec.start = -1
            if not data[bitmap + (i >> 3)] >> (i & 7) & 1:
                continue
            bit += 1
            if data[nulls + ((bit - 1) >> 3)] >> ((bit - 1) & 7) & 1:
                continue
            size = codec.fixed
            if size < 0:
                if end - at < codec.length_bytes:
                    raise BadImage("a value's length exceeds the event")
                length = little(data, at, codec.length_bytes)
                at += codec.length_bytes
                size = length
            if size > end - at:
                raise BadImage("a value exceeds the event")
            codec.start = at
            at += size
            codec.stop = at
        self.at = at
        return 0

    @cython.cfunc
    def _scan_after(
        self, events: bytes, end: cython.Py_ssize_t, bitmap: cython.Py_ssize_t, present: cython.Py_ssize_t
    ) -> cython.int:
        """Like :meth:`_scan`, for the image after the one scanned last; sets in the JSON codecs the value that their
        changes apply to."""
        data: cython.p_uchar = events
        codec: ColumnCodec
        spans: list[tuple[int, int]] = []
        columns: object = 0
        i: cython.Py_ssize_t
        if not self.partial:
            return self._scan(data, end, bitmap, present)
        for codec in self.jsons:
            spans.append((codec.start, codec.stop))
        try:
            columns, self.at = partial_head(events, self.at, end, len(self.jsons))
        except BadJson as bad:
            raise BadImage(str(bad)) from None
        self._scan(data, end, bitmap, present)
        for i in range(len(spans)):
            codec = self.jsons[i]
            if codec.start >= 0 and columns >> i & 1:
                codec.old_start, codec.old_stop = spans[i]
                if codec.old_start < 0:
                    raise BadImage(f"column {codec.name()}: changes of a value that is not there")
        return 0
