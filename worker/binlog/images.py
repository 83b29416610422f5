# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""The row images of one shard table's events: as row changes, or as the share of them that is one lane's.

Format: MySQL Internals Manual, "Rows Event". Compiled by Cython (types of the class in images.pxd), and plain Python
where it is not.
"""

from __future__ import annotations

import cython

from worker.binlog.crc import Crc32
from worker.binlog.jsondiff import partial_head
from worker.binlog.jsontext import BadJson
from worker.binlog.values import ColumnCodec, Unreadable
from worker.plan import TablePlan
from worker.replicate.batch import Batch, KeyState
from worker.replicate.placement import Bucket, crc_seed, hash_indexes
from worker.rows import ChangeKind, Literals, RowChange
from worker.rowstage.drops import RowDrops

_NULL = cython.declare(bytes, b"NULL")
_KIND_OF = cython.declare(tuple, (ChangeKind.INSERT, ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE))
_INSERT = cython.declare(cython.int, 1)
_UPDATE = cython.declare(cython.int, 2)
_DELETE = cython.declare(cython.int, 3)
_ROOM = cython.declare(cython.int, 1024)


_CRC = cython.declare(Crc32, Crc32())


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
    ``passed_over``, ``stops``: of the plan. ``drops``: which changes are passed over by their
    values.
    """

    def __init__(
        self,
        plan: TablePlan,
        codecs: list[ColumnCodec],
        keys: int,
        bucket: Bucket,
        drops: RowDrops | None = None,
    ) -> None:
        self.plan = plan
        self.shard = plan.shard
        self.loose = plan.loose
        self.passed_over = plan.passed_over
        self.stops = plan.stops
        self.codecs = codecs
        self.keys = keys
        self.at = 0
        by_slot = {codec.slot: codec for codec in codecs if codec.slot >= 0}
        for slot, written in enumerate(plan.columns):
            if written.is_constant:
                by_slot[slot] = ColumnCodec(plan.table, written.column, slot, -1, written.mapping, plan.source)
        self.written = [by_slot[slot] for slot in sorted(by_slot)]
        self.key_codecs = [by_slot[slot] for slot in plan.key]
        self.source_key_codecs = [by_slot[slot] for slot in plan.source_key]
        hashed = hash_indexes(plan)
        self.hashed = bytes(at in hashed for at in range(len(plan.key)))
        self.seed = crc_seed(plan)
        self.lane = bucket.lane
        self.lanes = bucket.lanes
        self.crc = 0
        self.out = bytearray(_ROOM)
        self.partial = False
        # Filled row by row and copied: cheaper than a new list each time.
        self.values: list[bytes] = [_NULL] * len(self.written)
        self.jsons = [codec for codec in codecs if codec.is_json]
        self.staged = plan.staged
        self.drops = drops
        self.tested = [] if drops is None else [by_slot[slot] for slot in drops.slots]
        self.tested_values: list[bytes] = [_NULL] * len(self.tested)

    @cython.cfunc
    def read(
        self,
        events: bytes,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        kind: cython.int,
        byte: cython.Py_ssize_t,
        event: cython.Py_ssize_t,
        rows: list[RowChange],
    ) -> cython.int:
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
        row: RowChange
        of: object = _KIND_OF[kind]
        drops: RowDrops | None = self.drops
        old_values: Literals = ()
        new_values: Literals = ()
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
                if drops is not None:
                    old_values = self._tested(data)
            if kind != _DELETE:
                self._scan_after(events, end, second, second_present)
                after = self._literals(data)
                if self.keys:
                    after_key = self._source_key(data)
                if drops is not None:
                    new_values = self._tested(data)
            if self.at == start:
                raise BadImage("a row image without a byte")
            if drops is not None and drops.concerns(kind) and self._dropped(drops, kind, old_values, new_values):
                continue
            # Without the constructor, whose arguments would become Python objects.
            row = RowChange.__new__(RowChange)
            row.byte = byte
            row.event = event
            row.kind = of
            row.plan = self.plan
            row.before = before
            row.after = after
            row.source_key_before = before_key
            row.source_key_after = after_key
            rows.append(row)
        return 0

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
        """Give ``batch`` the lane's share of a rows event; the rest is stepped over.

        ``pos``: of the event's end in the source's file. Raises as :meth:`read`, and what the batch raises.
        """
        data: cython.p_uchar = events
        first: cython.Py_ssize_t = self._open(events, at, end, kind)
        second: cython.Py_ssize_t = self._second(first, kind)
        first_present: cython.Py_ssize_t = self._present(data, first)
        second_present: cython.Py_ssize_t = self._present(data, second)
        plan: TablePlan = self.plan
        keys: dict[bytes, KeyState] | None = None
        mine: cython.bint
        size: cython.Py_ssize_t
        start: cython.Py_ssize_t
        old: bytes
        new: bytes
        if not len(self.key_codecs):
            return self._pick_unkeyed(events, end, kind, pos, batch, first, second)
        if self.drops is not None:
            return self._pick_some(events, end, kind, pos, batch, first, second)
        while self.at < end:
            start = self.at
            if kind == _INSERT:
                self._scan(data, end, second, second_present)
                size = self._key(data)
                if self._mine():
                    if keys is None:
                        keys = batch.keys_of(plan, self.shard)
                    new = self._cut(size)
                    if self.loose:
                        batch.loose_in(keys, plan, new, self._joined(data), False, pos)
                    else:
                        batch.put_in(keys, plan, new, self._joined(data), pos)
            elif kind == _DELETE:
                self._scan(data, end, first, first_present)
                size = self._key(data)
                if self._mine():
                    if keys is None:
                        keys = batch.keys_of(plan, self.shard)
                    if self.loose:
                        batch.loose_in(keys, plan, self._cut(size), None, True, pos)
                    else:
                        batch.remove_in(keys, plan, self._cut(size), pos)
            else:
                self._scan(data, end, first, first_present)
                size = self._key(data)
                mine = self._mine()
                self._keep_key()
                self._scan_after(events, end, second, second_present)
                if self._same_key(data):
                    # The bytes of most updates' keys: no need to write them twice.
                    if mine:
                        if keys is None:
                            keys = batch.keys_of(plan, self.shard)
                        new = self._cut(size)
                        if self.loose:
                            batch.loose_in(keys, plan, new, self._joined(data), True, pos)
                        else:
                            batch.replace_in(keys, plan, new, self._joined(data), pos)
                else:
                    if keys is None:
                        keys = batch.keys_of(plan, self.shard)
                    old = self._cut(size)
                    new = self._cut(self._key(data))
                    if self.loose:
                        self._loose_move(batch, keys, old, new, mine, data, pos)
                    elif old == new:
                        if mine:
                            batch.replace_in(keys, plan, new, self._joined(data), pos)
                    else:
                        # A key change is a DELETE of one key and an INSERT of another, maybe of other lanes.
                        if mine:
                            batch.remove_in(keys, plan, old, pos)
                        if self._mine():
                            batch.put_in(keys, plan, new, self._joined(data), pos)
            if self.at == start:
                raise BadImage("a row image without a byte")
        return 0

    @cython.cfunc
    def _loose_move(
        self,
        batch: Batch,
        keys: dict[bytes, KeyState],
        old: bytes,
        new: bytes,
        was_mine: cython.bint,
        data: cython.p_uchar,
        pos: cython.longlong,
    ) -> cython.int:
        """An update of a loose table whose key's bytes changed; the key written last is ``new``."""
        if old == new:
            if was_mine:
                batch.loose_in(keys, self.plan, new, self._joined(data), True, pos)
            return 0
        if was_mine:
            batch.loose_in(keys, self.plan, old, None, True, pos)
        if self._mine():
            batch.loose_in(keys, self.plan, new, self._joined(data), False, pos)
        return 0

    @cython.cfunc
    def _pick_some(
        self,
        events: bytes,
        end: cython.Py_ssize_t,
        kind: cython.int,
        pos: cython.longlong,
        batch: Batch,
        first: cython.Py_ssize_t,
        second: cython.Py_ssize_t,
    ) -> cython.int:
        """:meth:`pick` of a table whose changes may be passed over by their values; that is asked of the lane's own."""
        data: cython.p_uchar = events
        first_present: cython.Py_ssize_t = self._present(data, first)
        second_present: cython.Py_ssize_t = self._present(data, second)
        drops: RowDrops | None = self.drops
        asked: cython.bint = drops is not None and drops.concerns(kind)
        asked_before: cython.bint = asked and drops is not None and (kind == _DELETE or drops.looks_before)
        moved: cython.bint
        keys: dict[bytes, KeyState] = batch.keys_of(self.plan, self.shard)
        start: cython.Py_ssize_t
        size: cython.Py_ssize_t = 0
        went: cython.bint = False
        old: bytes = b""
        new: bytes
        before: Literals = ()
        after: Literals = ()
        while self.at < end:
            start = self.at
            if kind != _INSERT:
                self._scan(data, end, first, first_present)
                size = self._key(data)
                went = self._mine()
                if asked_before and (went or kind == _UPDATE):
                    before = self._tested(data)
            if kind == _UPDATE:
                self._keep_key()
            if kind != _DELETE:
                self._scan_after(events, end, second, second_present)
            if self.at == start:
                raise BadImage("a row image without a byte")
            if kind == _DELETE:
                if went and not (asked and drops is not None and self._dropped(drops, kind, before, after)):
                    batch.loose_in(keys, self.plan, self._cut(size), None, True, pos)
                continue
            moved = False
            if kind == _INSERT:
                size = self._key(data)
                if not self._mine():
                    continue
            elif self._same_key(data):
                # The bytes of most updates' keys: no need to write them twice.
                if not went:
                    continue
            else:
                moved = True
                old = self._cut(size)
                size = self._key(data)
                if not went and not self._mine():
                    continue
            new = self._cut(size)
            if asked and drops is not None:
                after = self._tested(data)
                if self._dropped(drops, kind, before, after):
                    continue
            if moved:
                self._loose_move(batch, keys, old, new, went, data, pos)
            else:
                batch.loose_in(keys, self.plan, new, self._joined(data), kind == _UPDATE, pos)
        return 0

    @cython.cfunc
    def _tested(self, data: cython.p_uchar) -> Literals:
        """The scanned image's values that decide whether the change is passed over, before mapping."""
        return self._tuple(self.tested, self.tested_values, data, False)

    @cython.cfunc
    def _dropped(self, drops: RowDrops, kind: cython.int, before: Literals, after: Literals) -> cython.bint:
        """Whether a change is passed over; of the values of its images."""
        if kind == _INSERT:
            return bool(drops.inserts(after))
        if kind == _DELETE:
            return bool(drops.deletes(before))
        return bool(drops.updates(before, after))

    @cython.cfunc
    def _pick_unkeyed(
        self,
        events: bytes,
        end: cython.Py_ssize_t,
        kind: cython.int,
        pos: cython.longlong,
        batch: Batch,
        first: cython.Py_ssize_t,
        second: cython.Py_ssize_t,
    ) -> cython.int:
        """:meth:`pick` of a table without a key: all rows are one lane's."""
        data: cython.p_uchar = events
        first_present: cython.Py_ssize_t = self._present(data, first)
        second_present: cython.Py_ssize_t = self._present(data, second)
        start: cython.Py_ssize_t
        before: tuple[bytes, ...]
        after: tuple[bytes, ...]
        drops: RowDrops | None = self.drops
        old_values: Literals = ()
        new_values: Literals = ()
        if self.seed % self.lanes != self.lane:
            self.at = end
            return 0
        while self.at < end:
            start = self.at
            before = ()
            after = ()
            if kind != _INSERT:
                self._scan(data, end, first, first_present)
                before = self._literals(data)
                if drops is not None:
                    old_values = self._tested(data)
            if kind != _DELETE:
                self._scan_after(events, end, second, second_present)
                after = self._literals(data)
                if drops is not None:
                    new_values = self._tested(data)
            if self.at == start:
                raise BadImage("a row image without a byte")
            if drops is not None and drops.concerns(kind) and self._dropped(drops, kind, old_values, new_values):
                continue
            batch.operate(self.plan, before, after, pos)
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _mine(self) -> cython.bint:
        """Whether the key written last is the lane's."""
        return self.lanes == 1 or self.crc % self.lanes == self.lane

    @cython.cfunc
    def _keep_key(self) -> cython.int:
        """Remember where the scanned image's key is."""
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
        """Whether the scanned image's key has the bytes of the key that was kept."""
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
            return codec.absent
        try:
            return codec.of_wire(data, codec.start, codec.stop, mapped)
        except Unreadable:
            raise codec.unreadable(_cut(data, codec.start, codec.stop)) from None

    @cython.cfunc
    def _literals(self, data: cython.p_uchar) -> Literals:
        """The scanned image's written values."""
        return self._tuple(self.written, self.values, data, True)

    @cython.cfunc
    def _source_key(self, data: cython.p_uchar) -> Literals:
        """The scanned image's key before mapping."""
        values: list[bytes] = [_NULL] * len(self.source_key_codecs)
        return self._tuple(self.source_key_codecs, values, data, False)

    @cython.cfunc
    def _tuple(
        self, codecs: list[ColumnCodec], values: list[bytes], data: cython.p_uchar, mapped: cython.bint
    ) -> Literals:
        """The codecs' literals, by way of ``values``, which has as many items."""
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
            raise codec.unreadable(_cut(data, codec.start, codec.stop)) from None
        return tuple(values)

    @cython.cfunc
    def _cut(self, size: cython.Py_ssize_t) -> bytes:
        """What was written last."""
        out: cython.p_uchar = self.out
        return _cut(out, 0, size)

    @cython.cfunc
    def _joined(self, data: cython.p_uchar) -> bytes:
        """The scanned image's literals with commas between them."""
        return self._cut(self._join(self.written, data, False))

    @cython.cfunc
    def _key(self, data: cython.p_uchar) -> cython.Py_ssize_t:
        """Write the scanned image's key (mapped), likewise; its size. Sets ``self.crc`` to what decides its lane."""
        return self._join(self.key_codecs, data, self.lanes > 1)

    @cython.cfunc
    def _join(self, codecs: list[ColumnCodec], data: cython.p_uchar, hashing: cython.bint) -> cython.Py_ssize_t:
        """Write the literals into ``self.out``; how many bytes."""
        codec: ColumnCodec
        literal: bytes
        plain: cython.p_uchar
        hashed: cython.p_uchar = self.hashed
        crc: Crc32 = _CRC
        write: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        most: cython.Py_ssize_t
        room: cython.Py_ssize_t = len(self.out)
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t
        out: cython.p_uchar
        if room > 1 << 20:
            self._room(0, 64)
            room = len(self.out)
        out = self.out
        if hashing:
            self.crc = self.seed
        for i in range(len(codecs)):
            codec = codecs[i]
            # One byte more than needed is always there, for the comma.
            if i:
                out[write] = 44
                write += 1
            stop = -1
            most = codec.most_bytes()
            if most:
                if room - write <= most:
                    out = self._room(write, most)
                    room = len(self.out)
                stop = codec.put_wire(out, write, data)
            if stop < 0:
                literal = self._literal(codec, data, True)
                stop = write + len(literal)
                if room <= stop:
                    out = self._room(write, len(literal))
                    room = len(self.out)
                plain = literal
                if cython.compiled:
                    for at in range(stop - write):
                        out[write + at] = plain[at]
                else:
                    out[write:stop] = literal
            if hashing and hashed[i]:
                self.crc = crc.of(out, write, stop, self.crc)
            write = stop
        return write

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
