# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Reads the rows of one shard table's events: all of them as row changes, or one lane's share into its batch.

Format: MySQL Internals Manual, "Rows Event". Compiled by Cython (types of the class in
worker/binlog/rows/image_reader.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

import cython

from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.binlog.rows.image_literals import ImageLiterals
from shardmerge.worker.binlog.rows.image_scanner import BadImage
from shardmerge.worker.binlog.rows.row_filter import RowFilters
from shardmerge.worker.core.batch import Batch, KeyState
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.table_plan import TablePlan

_NULL = cython.declare(bytes, b"NULL")
_KIND_OF = cython.declare(tuple, (ChangeKind.INSERT, ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE))
_INSERT = cython.declare(cython.int, 1)
_UPDATE = cython.declare(cython.int, 2)
_DELETE = cython.declare(cython.int, 3)


@cython.final
@cython.cclass
class ImageReader(ImageLiterals):
    """The rows of one shard table's events.

    ``codecs``: one bound codec per column of the source's table. ``keys``: how many key columns :meth:`read` returns
    unmapped; 0: none. ``bucket``: the lane whose rows :meth:`pick` keeps. ``skipped_kinds``, ``stop_kinds``: of
    the plan. ``filters``: filter changes out by their values.
    """

    def __init__(
        self,
        plan: TablePlan,
        codecs: list[ColumnCodec],
        keys: int,
        bucket: Bucket,
        filters: RowFilters | None = None,
    ) -> None:
        ImageLiterals.__init__(self, plan, codecs, bucket)
        self.shard = plan.shard
        self.may_lack_rows = plan.may_lack_rows
        self.skipped_kinds = plan.skipped_kinds
        self.stop_kinds = plan.stop_kinds
        self.staged = plan.staged
        self.keys = keys
        self.filters = filters
        self.filtered_kinds = self.filtered_before = 0
        self.tested: list[ColumnCodec] = []
        if filters is not None:
            self.tested = [self.by_slot[slot] for slot in filters.slots]
            self.filtered_kinds = sum(1 << kind for kind in ChangeKind if filters.applies_to(kind))
            if filters.reads_before:
                self.filtered_before = self.filtered_kinds & (1 << ChangeKind.UPDATE)
            self.filtered_before |= self.filtered_kinds & (1 << ChangeKind.DELETE)
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
        """Add the lane's share of a rows event to ``batch``; other rows are skipped.

        ``pos``: of the event's end in the source's file. Raises what :meth:`read` and the batch raise.
        """
        data: cython.p_uchar = events
        first: cython.Py_ssize_t = self._open(events, at, end, kind)
        second: cython.Py_ssize_t = self._second(first, kind)
        first_present: cython.Py_ssize_t = self._present(data, first)
        second_present: cython.Py_ssize_t = self._present(data, second)
        if not len(self.key_codecs):
            if self.seed % self.lanes != self.lane:
                # All rows of a table without a key belong to one lane.
                self.at = end
            while self.at < end:
                if self._next(events, end, kind, first, first_present, second, second_present):
                    batch.add_unkeyed(self.plan, self.before, self.after, pos)
            return 0
        keys: dict[bytes, KeyState] | None = None
        is_filtered: cython.bint = self.filtered_kinds >> kind & 1 != 0
        needs_before: cython.bint = self.filtered_before >> kind & 1 != 0
        own_before: cython.bint = False  # the row before the change belongs to the lane
        own_after: cython.bint  # the row after the change does
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
                own_before = self._mine()
                # The lane of a row whose key changes is not known yet.
                if needs_before and (own_before or kind == _UPDATE):
                    self._fill(self.tested, self.old_values, data, False)
            if kind == _UPDATE:
                self._keep_key()
            if kind != _DELETE:
                self._scan_after(events, end, second, second_present)
            if self.at == start:
                raise BadImage("a row image without a byte")
            own_after = own_before
            if kind == _INSERT:
                size = self._key(data)
                own_after = own_before = self._mine()
            elif kind == _UPDATE and not self._same_key(data):
                # Most updates do not change the bytes of the key: no need to write them twice.
                old = self._cut(size)
                size = self._key(data)
                own_after = self._mine()
                moved = True
            if not own_before and not own_after:
                continue
            new = self._cut(size)
            if is_filtered:
                if kind != _DELETE:
                    self._fill(self.tested, self.new_values, data, False)
                if self._is_filtered_out(kind):
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
                # A key change is a DELETE of one key and an INSERT of another, which may belong to other lanes.
                if own_before:
                    self._remove(batch, keys, old, pos)
                if own_after:
                    self._put(batch, keys, new, data, pos)
        return 0

    @cython.cfunc
    def mark(
        self,
        events: bytes,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        kind: cython.int,
        marks: bytearray,
        place: cython.Py_ssize_t,
    ) -> cython.int:
        """Set the byte ``marks[place + lane]`` of each lane to which a row of a rows event belongs, before or after the
        change. The reader's bucket must have more than one lane. Raises what :meth:`pick` raises for keys."""
        data: cython.p_uchar = events
        wanted: cython.p_uchar = marks
        first: cython.Py_ssize_t = self._open(events, at, end, kind)
        second: cython.Py_ssize_t = self._second(first, kind)
        first_present: cython.Py_ssize_t = self._present(data, first)
        second_present: cython.Py_ssize_t = self._present(data, second)
        start: cython.Py_ssize_t
        if not len(self.key_codecs):
            wanted[place + self.seed % self.lanes] = 1
            return 0
        while self.at < end:
            start = self.at
            if kind != _INSERT:
                self._scan(data, end, first, first_present)
                self._key(data)
                wanted[place + self.crc % self.lanes] = 1
            if kind == _UPDATE:
                self._keep_key()
            if kind != _DELETE:
                self._scan_after(events, end, second, second_present)
            if self.at == start:
                raise BadImage("a row image without a byte")
            if kind == _INSERT or (kind == _UPDATE and not self._same_key(data)):
                self._key(data)
                wanted[place + self.crc % self.lanes] = 1
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
        """Read one row change into ``self.before``, ``after`` and their keys; False if it is filtered out.

        ``first``, ``second``: the bitmaps of the images; ``…_present``: how many columns these hold.
        """
        data: cython.p_uchar = events
        start: cython.Py_ssize_t = self.at
        is_filtered: cython.bint = self.filtered_kinds >> kind & 1 != 0
        if kind != _INSERT:
            self._scan(data, end, first, first_present)
            self.before = self._literals(data)
            if self.keys:
                self.before_key = self._source_key(data)
            if is_filtered:
                self._fill(self.tested, self.old_values, data, False)
        else:
            self.before = self.before_key = ()
        if kind != _DELETE:
            self._scan_after(events, end, second, second_present)
            self.after = self._literals(data)
            if self.keys:
                self.after_key = self._source_key(data)
            if is_filtered:
                self._fill(self.tested, self.new_values, data, False)
        else:
            self.after = self.after_key = ()
        if self.at == start:
            raise BadImage("a row image without a byte")
        return not (is_filtered and self._is_filtered_out(kind))

    @cython.cfunc
    def _is_filtered_out(self, kind: cython.int) -> cython.bint:
        """Whether the filters drop a change with ``self.old_values`` and ``new_values``."""
        filters: RowFilters | None = self.filters
        if filters is None:
            return False
        if kind == _INSERT:
            return bool(filters.inserts(self.new_values))
        if kind == _DELETE:
            return bool(filters.deletes(self.old_values))
        return bool(filters.updates(self.old_values, self.new_values))

    @cython.cfunc
    def _put(
        self, batch: Batch, keys: dict[bytes, KeyState], key: bytes, data: cython.p_uchar, pos: cython.longlong
    ) -> cython.int:
        """Add the INSERT of the scanned row."""
        if self.may_lack_rows:
            return batch.upsert_in(keys, self.plan, key, self._joined(data), False, pos)
        return batch.put_in(keys, self.plan, key, self._joined(data), pos)

    @cython.cfunc
    def _replace(
        self, batch: Batch, keys: dict[bytes, KeyState], key: bytes, data: cython.p_uchar, pos: cython.longlong
    ) -> cython.int:
        """Add the UPDATE of ``key``'s row to the scanned row."""
        if self.may_lack_rows:
            return batch.upsert_in(keys, self.plan, key, self._joined(data), True, pos)
        return batch.replace_in(keys, self.plan, key, self._joined(data), pos)

    @cython.cfunc
    def _remove(self, batch: Batch, keys: dict[bytes, KeyState], key: bytes, pos: cython.longlong) -> cython.int:
        """Add the DELETE of ``key``'s row."""
        if self.may_lack_rows:
            return batch.upsert_in(keys, self.plan, key, None, True, pos)
        return batch.remove_in(keys, self.plan, key, pos)
