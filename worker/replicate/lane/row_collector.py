"""Collects the rows of a lane's next transaction: decodes blocks, applies the rules, compacts the changes by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from shardmerge.proto import errors, relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.little_endian import event_end, event_size
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.uncomputed import StagedChange, UncomputedChange
from shardmerge.worker.replicate.lane.cascade_steps import CascadeStep, CascadeSteps
from shardmerge.worker.replicate.lane.lane_change import LaneChange, LanePlans
from shardmerge.worker.replicate.lane.lane_spec import LaneSpec
from shardmerge.worker.replicate.lane.plan_cursor import PlanCursor
from shardmerge.worker.replicate.lane.watermark_filter import WatermarkFilter, place_in
from shardmerge.worker.rules.stage.row_stage import RowStage
from shardmerge.worker.rules.stage.server_filter import ServerFilter
from shardmerge.worker.rules.transform.client import TransformClient
from shardmerge.worker.target.quarantine.skipped_events import (
    SkippedRow,
    lane_part,
    skips_in_block,
    with_event_position,
)

_PENDING_ROWS = 4000
_PENDING_BYTES = 16 << 20


class PendingRows:
    """Changes that are evaluated together: Spark answers in milliseconds, for one row or for thousands.

    ``changes``: in order; ``places``: the end position of each row change's event, by the change's id().
    """

    def __init__(self) -> None:
        self.changes: list[StagedChange] = []
        self.places: dict[int, SourcePosition] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.changes) >= _PENDING_ROWS or self._bytes >= _PENDING_BYTES

    def add(self, changes: Iterable[StagedChange], place: Callable[[RowChange], SourcePosition]) -> None:
        """``place``: returns the end position of a change's event."""
        for change in changes:
            self.changes.append(change)
            if isinstance(change, UncomputedChange):
                self._bytes += change.size
                continue
            self.places[id(change)] = place(change)
            self._bytes += sum(map(len, change.before)) + sum(map(len, change.after))

    def has_rows_of(self, shard: int) -> bool:
        """Whether it has changes of the shard table."""
        return any(change.plan.shard == shard for change in self.changes)


class Collected(NamedTuple):
    """What a block has added.

    ``events``: how many it has; ``reached_edge``: a table enters or leaves the stream at its end; ``must_commit``: the
    batch has rows of a table whose plan changes there, and a batch has one plan of each table.
    """

    events: int
    reached_edge: bool
    must_commit: bool


class RowCollector:
    """Collects the rows of one lane. ``position``: the source position up to which the lane has applied, for errors.

    ``batch``: the next transaction's changes, by key; ``pending``: those that a transform has yet to evaluate. Others
    only read them.
    """

    def __init__(self, spec: LaneSpec, lane: int, position: Callable[[], SourcePosition]) -> None:
        self._spec = spec
        self._bucket = spec.bucket(lane)
        self._position = position
        self._cursor = PlanCursor(LanePlans.of(spec.plans, spec.scope, spec.windows, spec.later))
        self._watermarks = WatermarkFilter(spec.handover)
        self._decoder = BlockDecoder(
            self._resolve,
            source_keys=spec.handover is not None,
            source=spec.apply.source,
            bucket=self._bucket,
            filters=True,
        )
        self._transforms = TransformClient(spec.address, spec.identity(lane))
        judge = ServerFilter(spec.apply.target, spec.apply.meta_schema)
        self._stage = RowStage(judge, self._bucket, self._transforms)
        self._stage.set_plans(spec.plans)
        self._cascades = CascadeSteps(spec.cascades, spec.plans, self._bucket, spec.handover) if spec.cascades else None
        self.batch = Batch(lane, spec.lanes)
        self.pending = PendingRows()
        self._skipped: list[SkippedRow] = []

    @property
    def waiting_rows(self) -> int:
        """How many rows wait to be committed."""
        rows = self.batch.rows + len(self.pending.changes)
        return rows if self._cascades is None else rows + self._cascades.rows

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of rows wait to be committed."""
        return self.batch.size if self._cascades is None else self.batch.size + self._cascades.size

    @property
    def has_changes(self) -> bool:
        """Whether anything waits to be committed, be it changes without an effect."""
        if self.batch.changes or self.pending.changes:
            return True
        return self._cascades is not None and bool(self._cascades.rows)

    def take_steps(self) -> tuple[CascadeStep, ...]:
        """The steps before ``batch`` in the next transaction; if there are any, ``batch`` is the last of them, and a
        new one begins."""
        if self._cascades is None:
            return ()
        steps, self.batch = self._cascades.take(self.batch, self._next_batch)
        return steps

    def _next_batch(self) -> Batch:
        batch = self.batch
        return Batch(batch.lane, batch.lanes, batch.file, batch.by_shard)

    def begin_batch(self, *, by_shard: bool) -> None:
        """Begin an empty batch. ``by_shard``: it distinguishes keys by shard table, because some may be held."""
        self.batch = Batch(self._bucket.lane, self._bucket.lanes, by_shard=by_shard)

    def open(self, format_description: bytes) -> None:
        """A file of the source's binlog begins."""
        self._decoder.open(format_description)

    def change_plans(self, change: LaneChange) -> None:
        """Use other plans and another scope from here on. Only right after a commit. Raises ValueError."""
        cursor = self._cursor
        cursor.use(change.apply(cursor.current))
        if self._cascades is not None:
            self._cascades.use(cursor.plans.values())
        names = change.names
        if names is None or not self._stage.change_plans(cursor.current.plans.values(), names):
            self._stage.set_plans(cursor.current.plans.values())
            self._decoder.forget()
        else:
            self._decoder.forget_tables(names)

    def collect(self, block: relay_pb2.Block, events: bytes, skip: int, end: SourcePosition) -> Collected:
        """Add this lane's rows of the block.

        ``events``: its bytes; ``skip``: how many of the first ones were committed before; ``end``: its end position.
        Raises TABLE_UNKNOWN, SKIP_AMBIGUOUS, and the errors of the decoder, the rules and the batch with the event's
        position.
        """
        self._pass_edges(RelayOffset.from_proto(block.start))
        file = end.file
        skipped = skips_in_block(self._spec.skips, end, events)
        if skipped and block.place_at:
            places = ", ".join(str(SourcePosition(file, pos)) for pos in sorted(skipped))
            raise errors.replicate.SKIP_AMBIGUOUS(source=self._spec.apply.source, position=places)
        try:
            if skipped or self._watermarks.concerns(block):
                self._collect_row_by_row(events, skip, block, skipped)
                count = _count_events(events)
            else:
                count = self._decoder.pick(events, skip, file, self.batch)
                if self.batch.staged:
                    self._evaluate_staged(events, block)
        except ShardmergeError as error:
            raise with_event_position(error, file, self._decoder.event_end) from error
        reached = RelayOffset.from_proto(block.end)
        must_commit = any(
            self.batch.has_rows_of(plan.shard) or self.pending.has_rows_of(plan.shard)
            for plan in self._cursor.later.due(reached)
        )
        return Collected(count, self._cursor.windows.is_at_edge(reached), must_commit)

    def _pass_edges(self, start: RelayOffset) -> None:
        """Use the windows and plans that apply from ``start`` on."""
        changed, has_plans = self._cursor.pass_edges(start)
        if has_plans and self._cascades is not None:
            self._cascades.use(self._cursor.plans.values())
        if changed:
            self._decoder.forget_tables(changed)

    def evaluate_pending(self) -> None:
        """Evaluate the rows that wait for a transform, and add the results to the batch."""
        waiting, self.pending = self.pending, PendingRows()
        if waiting.changes:
            self._stage.add_pending(waiting.changes, waiting.places, self.batch)

    def take_skipped(self) -> list[SkippedRow]:
        """The rows since the last call that an operator's override skips."""
        found, self._skipped = self._skipped, []
        return found

    def close(self) -> None:
        self._stage.close()
        self._transforms.close()

    def _resolve(self, schema: str, table: str) -> TablePlan | None:
        plan = self._cursor.plan_of(
            schema,
            table,
            lambda: errors.replicate.TABLE_UNKNOWN(
                source=self._spec.apply.source, schema=schema, table=table, position=self._position()
            ),
        )
        if plan is None:
            return None
        decoded_by = self._stage.decoded_by
        return decoded_by(plan) if self._cascades is None else self._cascades.prepared(plan, decoded_by)

    def _collect_row_by_row(self, events: bytes, skip: int, block: relay_pb2.Block, skipped: frozenset[int]) -> None:
        """Add a block row by row: rows that the snapshot holds are left out, rows of ``skipped`` events recorded."""
        self.evaluate_pending()  # earlier rows first
        file = self.batch.file = block.end_position.file
        changes, unread = self._decoder.decode_skipping(events, skip, skipped)
        ordered, changes = self._split_ordered(changes)
        changes, unmapped = self._stage.evaluate(
            changes, lambda change: _end_of(change, events), lambda change: _end_of(change, events) in skipped
        )
        unread += [(_end_of(change, events), plan, error) for change, plan, error in unmapped]
        if self._watermarks.concerns(block):
            changes = self._watermarks.counted(changes, block)
        for change in changes:
            pos = _end_of(change, events)
            if pos not in skipped:
                self.batch.add(change, pos)
                continue
            own = lane_part(change, SourcePosition(file, pos), self._bucket)
            if own is not None:
                self._skipped.append(own)
        self._add_ordered(ordered, events, block, skipped)
        for pos, plan, error in unread:
            self._skipped.append(SkippedRow(plan, "unreadable", "", "", str(error), SourcePosition(file, pos)))

    def _split_ordered(self, changes: list[RowChange]) -> tuple[list[RowChange], list[RowChange]]:
        """The changes between which rows may be derived, and the others."""
        cascades = self._cascades
        if cascades is None:
            return [], changes
        ordered = [change for change in changes if cascades.orders(change.plan)]
        return ordered, [change for change in changes if not cascades.orders(change.plan)]

    def _add_ordered(
        self, changes: list[RowChange], events: bytes, block: relay_pb2.Block, skipped: frozenset[int] = frozenset()
    ) -> None:
        """Add changes between which rows may be derived. What a skipped change caused is not derived."""
        cascades = self._cascades
        if cascades is None or not changes:
            return
        file, place = self.batch.file, place_in(block)
        filtered = self._watermarks.concerns(block)
        for change in changes:
            pos = _end_of(change, events)
            if pos in skipped:
                own = lane_part(change, SourcePosition(file, pos), self._bucket)
                if own is not None:
                    self._skipped.append(own)
                continue
            self.batch = cascades.add(change, events, place(change), self.batch, self._next_batch)
            for counted in self._watermarks.counted([change], block) if filtered else (change,):
                self.batch.add(counted, pos)

    def _evaluate_staged(self, events: bytes, block: relay_pb2.Block) -> None:
        """Evaluate the changes that the decoder has staged, and add the results to the batch."""
        staged = self.batch.take_staged()
        cascades = self._cascades
        if cascades is not None:
            ordered = [each for each in staged if isinstance(each, RowChange) and cascades.orders(each.plan)]
            self._add_ordered(ordered, events, block)
            staged = [each for each in staged if not cascades.orders(each.plan)]
        if not staged:
            return
        if self._stage.batches:
            own = self._stage.for_lane(staged)
            file = self.batch.file
            self.pending.add(own, lambda change: SourcePosition(file, _end_of(change, events)))
            if self.pending.is_full:
                self.evaluate_pending()
            return
        rows = [each for each in staged if isinstance(each, RowChange)]
        changes, _ = self._stage.evaluate(rows, lambda change: _end_of(change, events))
        for change in changes:
            self.batch.add(change, _end_of(change, events))


def _end_of(change: RowChange, events: bytes) -> int:
    """The end of the change's event in the source's file."""
    return event_end(events, change.byte)


def _count_events(events: bytes) -> int:
    """Events in a piece of a group; their sizes were checked by the decoder."""
    count = at = 0
    while at < len(events):
        at += event_size(events, at)
        count += 1
    return count
