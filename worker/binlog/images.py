# cython: language_level=3, cdivision=True
"""The row images of one shard table's events: as row changes, or as the share of them that is one lane's.

Format: MySQL Internals Manual, "Rows Event". Compiled by Cython (types of the class in images.pxd), and plain Python
where it is not.
"""

from __future__ import annotations

from typing import Any

import cython

from worker.binlog.jsondiff import partial_head
from worker.binlog.jsontext import BadJson
from worker.binlog.values import ColumnCodec, Unreadable
from worker.plan import TablePlan
from worker.replicate.placement import Bucket, crc_seed, hash_indexes
from worker.rows import ChangeKind, Literals, RowChange

_row: Any = getattr(tuple, "__new__")  # noqa: B009 (typed access is refused); skips the NamedTuple constructor
_NULL = b"NULL"
_KIND_OF = (None, ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE)
_INSERT = cython.declare(cython.int, 1)
_UPDATE = cython.declare(cython.int, 2)
_DELETE = cython.declare(cython.int, 3)
_ROOM = cython.declare(cython.int, 1024)


def _crc_bytes() -> bytes:
    """The 256 words of CRC-32's table (ISO 3309, as zlib has it), little-endian."""
    words = bytearray()
    for number in range(256):
        value = number
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        words += value.to_bytes(4, "little")
    return bytes(words)


_CRC = _crc_bytes()


class BadImage(Exception):
    """A row image that does not fit its event or its table."""


class MissingColumn(Exception):
    """A written column is absent from the row images; the argument is its name."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _little(data: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.ulonglong:
    value: cython.ulonglong = 0
    i: cython.Py_ssize_t
    for i in range(size - 1, -1, -1):
        value = (value << 8) | data[at + i]
    return value


@cython.cfunc
@cython.inline
def _cut(out: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytes:
    """A copy of a part of a buffer."""
    if cython.compiled:
        return out[start:stop]
    return bytes(out[start:stop])


@cython.final
@cython.cclass
class ImageReader:
    """The rows of one shard table's events.

    ``codecs``: one bound codec per column of the source's table. ``keys``: how many key columns :meth:`read` is to give
    unmapped; 0 when not asked for. ``bucket``: the lane whose rows :meth:`pick` keeps. ``partial``: the events are
    PARTIAL_UPDATE_ROWS, whose after images may hold changes instead of JSON values; set before each event.
    """

    def __init__(self, plan: TablePlan, codecs: list[ColumnCodec], keys: int, bucket: Bucket) -> None:
        self.plan = plan
        self.codecs = codecs
        self.keys = keys
        self.at = 0
        by_slot = {codec.slot: codec for codec in codecs if codec.slot >= 0}
        self.written = [by_slot[slot] for slot in sorted(by_slot)]
        self.key_codecs = [by_slot[slot] for slot in plan.key]
        hashed = hash_indexes(plan)
        self.hashed = bytes(at in hashed for at in range(len(plan.key)))
        self.seed = crc_seed(plan)
        self.lane = bucket.lane
        self.lanes = bucket.lanes
        self.crc = 0
        self.out = bytearray(_ROOM)
        self.partial = False
        self.jsons = [codec for codec in codecs if codec.is_json]

    @cython.ccall
    def read(
        self,
        events: bytes,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        kind: cython.int,
        byte: object,
        event: object,
        rows: list[RowChange],
    ) -> object:
        """Append every row of a rows event to ``rows``: its bytes at..end, from the column count to the last image.

        ``kind``: ChangeKind; ``byte``, ``event``: of the RowChange. Raises BadImage, MissingColumn, and the codecs'
        errors for values that cannot be read.
        """
        data: cython.p_uchar = events
        first: cython.Py_ssize_t = self._open(events, at, end, kind)
        second: cython.Py_ssize_t = self._second(first, kind)
        first_present: cython.Py_ssize_t = self._present(data, first)
        second_present: cython.Py_ssize_t = self._present(data, second)
        before: tuple[bytes, ...]
        before_key: tuple[bytes, ...]
        after: tuple[bytes, ...]
        after_key: tuple[bytes, ...]
        of: object = _KIND_OF[kind]
        while self.at < end:
            start: cython.Py_ssize_t = self.at
            before = ()
            before_key = ()
            after = ()
            after_key = ()
            if kind != _INSERT:
                self._scan(data, end, first, first_present)
                before = self._literals(data)
                if self.keys:
                    before_key = self._source_key(data)
            if kind != _DELETE:
                self._scan_after(events, end, second, second_present)
                after = self._literals(data)
                if self.keys:
                    after_key = self._source_key(data)
            if self.at == start:
                raise BadImage("a row image without a byte")
            rows.append(_row(RowChange, (byte, event, of, self.plan, before, after, before_key, after_key)))
        return None

    @cython.ccall
    def pick(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, kind: cython.int, pos: object, batch: Any
    ) -> object:
        """Give ``batch`` (worker.replicate.batch.Batch) the lane's share of a rows event; the rest is stepped over.

        ``pos``: of the event's end in the source's file. Raises as :meth:`read`, and what the batch raises.
        """
        data: cython.p_uchar = events
        first: cython.Py_ssize_t = self._open(events, at, end, kind)
        second: cython.Py_ssize_t = self._second(first, kind)
        first_present: cython.Py_ssize_t = self._present(data, first)
        second_present: cython.Py_ssize_t = self._present(data, second)
        has_key: cython.bint = len(self.key_codecs) > 0
        lanes: cython.uint = self.lanes
        lane: cython.uint = self.lane
        old_mine: cython.bint
        new_mine: cython.bint
        plan: object = self.plan
        before: object
        after: object
        if not has_key and self.seed % lanes != lane:
            self.at = end
            return None
        while self.at < end:
            start: cython.Py_ssize_t = self.at
            old_mine = False
            new_mine = False
            old: bytes = b""
            new: bytes = b""
            if not has_key:
                before = ()
                after = ()
                if kind != _INSERT:
                    self._scan(data, end, first, first_present)
                    before = self._literals(data)
                if kind != _DELETE:
                    self._scan_after(events, end, second, second_present)
                    after = self._literals(data)
                batch.operate(plan, before, after, pos)
            elif kind == _INSERT:
                self._scan(data, end, second, second_present)
                new = self._key(data)
                if lanes == 1 or self.crc % lanes == lane:
                    batch.put(plan, new, self._joined(data), pos)
            elif kind == _DELETE:
                self._scan(data, end, first, first_present)
                old = self._key(data)
                if lanes == 1 or self.crc % lanes == lane:
                    batch.remove(plan, old, pos)
            else:
                self._scan(data, end, first, first_present)
                old = self._key(data)
                old_mine = lanes == 1 or self.crc % lanes == lane
                self._scan_after(events, end, second, second_present)
                new = self._key(data)
                new_mine = lanes == 1 or self.crc % lanes == lane
                if old == new:
                    if new_mine:
                        batch.replace(plan, new, self._joined(data), pos)
                else:
                    # A key change is a DELETE of one key and an INSERT of another, maybe of other lanes.
                    if old_mine:
                        batch.remove(plan, old, pos)
                    if new_mine:
                        batch.put(plan, new, self._joined(data), pos)
            if self.at == start:
                raise BadImage("a row image without a byte")
        return None

    @cython.cfunc
    def _open(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, kind: cython.int
    ) -> cython.Py_ssize_t:
        """Past the column count (a length-encoded integer; a table has at most 4096 columns): the first bitmap.

        Sets ``self.at`` behind the bitmaps.
        """
        data: cython.p_uchar = events
        count: cython.Py_ssize_t = len(self.codecs)
        width: cython.Py_ssize_t = (count + 7) // 8
        said: cython.Py_ssize_t = -1
        if at < 0 or end > len(events):
            raise BadImage("rows lie outside the event")
        if at < end and data[at] < 251:
            said = data[at]
            at += 1
        elif at + 3 <= end and data[at] == 252:
            said = data[at + 1] | data[at + 2] << 8
            at += 3
        if said != count:
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
        """How many columns the images hold; all that are written must be among them."""
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
        """Find each codec's value in the image at ``self.at``: its ``start`` (-1: NULL), ``stop``; move behind it.

        A value stands for itself, not for changes of another.
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
        for codec in self.jsons:
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
                length = _little(data, at, codec.length_bytes)
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
        """As :meth:`_scan`, of the image behind the one scanned last; tells JSON codecs which value theirs changes."""
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

    @cython.cfunc
    def _literal(self, codec: ColumnCodec, data: cython.p_uchar, mapped: cython.bint) -> bytes:
        """The value that was scanned."""
        if codec.start < 0:
            return _NULL
        try:
            return codec.of_wire(data, codec.start, codec.stop, mapped)
        except Unreadable:
            raise codec.unreadable(_cut(data, codec.start, codec.stop)) from None

    @cython.cfunc
    def _literals(self, data: cython.p_uchar) -> Literals:
        """The scanned image's written values."""
        values: list[bytes] = []
        codec: ColumnCodec
        for codec in self.written:
            values.append(self._literal(codec, data, True))
        return tuple(values)

    @cython.cfunc
    def _source_key(self, data: cython.p_uchar) -> Literals:
        """The scanned image's key before mapping."""
        values: list[bytes] = []
        codec: ColumnCodec
        for codec in self.key_codecs:
            values.append(self._literal(codec, data, False))
        return tuple(values)

    @cython.cfunc
    def _joined(self, data: cython.p_uchar) -> bytes:
        """The scanned image's literals with commas between them."""
        stop: cython.Py_ssize_t = self._join(self.written, data, False)
        out: cython.p_uchar = self.out
        return _cut(out, 0, stop)

    @cython.cfunc
    def _key(self, data: cython.p_uchar) -> bytes:
        """The scanned image's key (mapped), likewise; sets ``self.crc`` to what decides its lane."""
        stop: cython.Py_ssize_t = self._join(self.key_codecs, data, True)
        out: cython.p_uchar = self.out
        return _cut(out, 0, stop)

    @cython.cfunc
    def _join(self, codecs: list[ColumnCodec], data: cython.p_uchar, hashing: cython.bint) -> cython.Py_ssize_t:
        """Write the literals into ``self.out``; how many bytes."""
        codec: ColumnCodec
        literal: bytes
        plain: cython.p_uchar
        hashed: cython.p_uchar = self.hashed
        write: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        most: cython.Py_ssize_t
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t
        out: cython.p_uchar = self._room(0, 64)
        if hashing:
            self.crc = self.seed
        for i in range(len(codecs)):
            codec = codecs[i]
            if i:
                out[write] = 44
                write += 1
            stop = -1
            if codec.start >= 0:
                most = codec.most_bytes()
                if most:
                    out = self._room(write, most)
                    stop = codec.put_wire(out, write, data)
            if stop < 0:
                literal = self._literal(codec, data, True)
                out = self._room(write, len(literal))
                stop = write + len(literal)
                plain = literal
                if cython.compiled:
                    for at in range(stop - write):
                        out[write + at] = plain[at]
                else:
                    out[write:stop] = literal
            if hashing and hashed[i]:
                self._add_crc(out, write, stop)
            write = stop
        return write

    @cython.cfunc
    def _add_crc(self, out: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
        """CRC-32 of further bytes, as zlib.crc32(bytes, self.crc)."""
        table: cython.p_uchar = _CRC
        value: cython.uint = self.crc ^ 0xFFFFFFFF
        at: cython.Py_ssize_t
        for at in range(start, stop):
            value = value >> 8 ^ cython.cast(cython.uint, _little(table, 4 * ((value ^ out[at]) & 0xFF), 4))
        self.crc = value ^ 0xFFFFFFFF
        return 0

    @cython.cfunc
    def _room(self, used: cython.Py_ssize_t, more: cython.Py_ssize_t) -> cython.p_uchar:
        """The buffer, with room for ``more`` bytes and a comma behind the ``used`` ones; a huge one is not kept."""
        have: cython.Py_ssize_t = len(self.out)
        if have < used + more + 1:
            self.out = self.out[:used] + bytearray(max(used, more) + more + int(_ROOM))
        elif used == 0 and have > 1 << 20:
            self.out = bytearray(more + int(_ROOM))
        out: cython.p_uchar = self.out
        return out
