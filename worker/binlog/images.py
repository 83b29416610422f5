# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""The rows of one shard table's events: as row changes, or as the share of them that is one lane's.

Format: MySQL Internals Manual, "Rows Event". Compiled by Cython (types of the class in images.pxd), and plain Python
where it is not.
"""

from __future__ import annotations

import cython

from worker.binlog.imagescan import BadImage
from worker.binlog.imagetext import ImageText
from worker.binlog.values import ColumnCodec
from worker.plan import TablePlan
from worker.replicate.batch import Batch, KeyState
from worker.replicate.placement import Bucket
from worker.rows import ChangeKind, Literals, RowChange
from worker.rowstage.drops import RowDrops

_NULL = cython.declare(bytes, b"NULL")
_KIND_OF = cython.declare(tuple, (ChangeKind.INSERT, ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE))
_INSERT = cython.declare(cython.int, 1)
_UPDATE = cython.declare(cython.int, 2)
_DELETE = cython.declare(cython.int, 3)


@cython.final
@cython.cclass
class ImageReader(ImageText):
    """The rows of one shard table's events.

    ``codecs``: one bound codec per column of the source's table. ``keys``: how many key columns :meth:`read` is to give
    unmapped; 0 when not asked for. ``bucket``: the lane whose rows :meth:`pick` keeps. ``passed_over``, ``stops``: of
    the plan. ``drops``: which changes are passed over by their values.
    """

    def __init__(
        self,
        plan: TablePlan,
        codecs: list[ColumnCodec],
        keys: int,
        bucket: Bucket,
        drops: RowDrops | None = None,
    ) -> None:
        ImageText.__init__(self, plan, codecs, bucket)
        self.shard = plan.shard
        self.loose = plan.loose
        self.passed_over = plan.passed_over
        self.stops = plan.stops
        self.staged = plan.staged
        self.keys = keys
        self.drops = drops
        self.asked = self.asked_before = 0
        self.tested: list[ColumnCodec] = []
        if drops is not None:
            self.tested = [self.by_slot[slot] for slot in drops.slots]
            self.asked = sum(1 << kind for kind in ChangeKind if drops.concerns(kind))
            if drops.looks_before:
                self.asked_before = self.asked & (1 << ChangeKind.UPDATE)
            self.asked_before |= self.asked & (1 << ChangeKind.DELETE)
        self.old_values: list[bytes] = [_NULL] * len(self.tested)
        self.new_values: list[bytes] = [_NULL] * len(self.tested)
        self.before: Literals = ()
        self.after: Literals = ()
        self.before_key: Literals = ()
        self.after_key: Literals = ()

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
        row: RowChange
        of: object = _KIND_OF[kind]
        while self.at < end:
            if not self._next(events, end, kind, first, first_present, second, second_present):
                continue
            # Without the constructor, whose arguments would become Python objects.
            row = RowChange.__new__(RowChange)
            row.byte = byte
            row.event = event
            row.kind = of
            row.plan = self.plan
            row.before = self.before
            row.after = self.after
            row.source_key_before = self.before_key
            row.source_key_after = self.after_key
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
        if not len(self.key_codecs):
            if self.seed % self.lanes != self.lane:
                # All rows of a table without a key are one lane's.
                self.at = end
            while self.at < end:
                if self._next(events, end, kind, first, first_present, second, second_present):
                    batch.operate(self.plan, self.before, self.after, pos)
            return 0
        keys: dict[bytes, KeyState] | None = None
        asked: cython.bint = self.asked >> kind & 1 != 0
        asked_before: cython.bint = self.asked_before >> kind & 1 != 0
        left: cython.bint = False  # the row before the change is the lane's
        came: cython.bint  # the row behind it is
        moved: cython.bint
        size: cython.Py_ssize_t = 0
        start: cython.Py_ssize_t
        old: bytes = b""
        new: bytes
        while self.at < end:
            start = self.at
            moved = False
            if kind != _INSERT:
                self._scan(data, end, first, first_present)
                size = self._key(data)
                left = self._mine()
                # The lane of a row whose key changes is not known yet.
                if asked_before and (left or kind == _UPDATE):
                    self._fill(self.tested, self.old_values, data, False)
            if kind == _UPDATE:
                self._keep_key()
            if kind != _DELETE:
                self._scan_after(events, end, second, second_present)
            if self.at == start:
                raise BadImage("a row image without a byte")
            came = left
            if kind == _INSERT:
                size = self._key(data)
                came = left = self._mine()
            elif kind == _UPDATE and not self._same_key(data):
                # The bytes of most updates' keys are the same: no need to write them twice.
                old = self._cut(size)
                size = self._key(data)
                came = self._mine()
                moved = True
            if not left and not came:
                continue
            new = self._cut(size)
            if asked:
                if kind != _DELETE:
                    self._fill(self.tested, self.new_values, data, False)
                if self._dropped(kind):
                    continue
            if keys is None:
                keys = batch.keys_of(self.plan, self.shard)
            if kind == _INSERT:
                self._put(batch, keys, new, data, pos)
            elif kind == _DELETE:
                self._remove(batch, keys, new, pos)
            elif not moved or old == new:
                self._replace(batch, keys, new, data, pos)
            else:
                # A key change is a DELETE of one key and an INSERT of another, maybe of other lanes.
                if left:
                    self._remove(batch, keys, old, pos)
                if came:
                    self._put(batch, keys, new, data, pos)
        return 0

    @cython.cfunc
    def _next(
        self,
        events: bytes,
        end: cython.Py_ssize_t,
        kind: cython.int,
        first: cython.Py_ssize_t,
        first_present: cython.Py_ssize_t,
        second: cython.Py_ssize_t,
        second_present: cython.Py_ssize_t,
    ) -> cython.bint:
        """Read one row change into ``self.before``, ``after`` and their keys; False if it is passed over.

        ``first``, ``second``: the bitmaps of the images; ``…_present``: how many columns these hold.
        """
        data: cython.p_uchar = events
        start: cython.Py_ssize_t = self.at
        asked: cython.bint = self.asked >> kind & 1 != 0
        if kind != _INSERT:
            self._scan(data, end, first, first_present)
            self.before = self._literals(data)
            if self.keys:
                self.before_key = self._source_key(data)
            if asked:
                self._fill(self.tested, self.old_values, data, False)
        else:
            self.before = self.before_key = ()
        if kind != _DELETE:
            self._scan_after(events, end, second, second_present)
            self.after = self._literals(data)
            if self.keys:
                self.after_key = self._source_key(data)
            if asked:
                self._fill(self.tested, self.new_values, data, False)
        else:
            self.after = self.after_key = ()
        if self.at == start:
            raise BadImage("a row image without a byte")
        return not (asked and self._dropped(kind))

    @cython.cfunc
    def _dropped(self, kind: cython.int) -> cython.bint:
        """Whether a change is passed over by ``self.old_values`` and ``new_values``."""
        drops: RowDrops | None = self.drops
        if drops is None:
            return False
        if kind == _INSERT:
            return bool(drops.inserts(self.new_values))
        if kind == _DELETE:
            return bool(drops.deletes(self.old_values))
        return bool(drops.updates(self.old_values, self.new_values))

    @cython.cfunc
    def _put(
        self, batch: Batch, keys: dict[bytes, KeyState], key: bytes, data: cython.p_uchar, pos: cython.longlong
    ) -> cython.int:
        """The scanned row has come."""
        if self.loose:
            return batch.loose_in(keys, self.plan, key, self._joined(data), False, pos)
        return batch.put_in(keys, self.plan, key, self._joined(data), pos)

    @cython.cfunc
    def _replace(
        self, batch: Batch, keys: dict[bytes, KeyState], key: bytes, data: cython.p_uchar, pos: cython.longlong
    ) -> cython.int:
        """The scanned row is what has become of ``key``'s."""
        if self.loose:
            return batch.loose_in(keys, self.plan, key, self._joined(data), True, pos)
        return batch.replace_in(keys, self.plan, key, self._joined(data), pos)

    @cython.cfunc
    def _remove(self, batch: Batch, keys: dict[bytes, KeyState], key: bytes, pos: cython.longlong) -> cython.int:
        """``key``'s row has gone."""
        if self.loose:
            return batch.loose_in(keys, self.plan, key, None, True, pos)
        return batch.remove_in(keys, self.plan, key, pos)
