"""The hand-over from snapshot to stream: decides which changes the chunks hold already (I5).

The stream starts at the lowest high watermark. Until it has cleared the highest one, a change counts for a key only if
it is at or after the high watermark of the chunk that the key belongs to.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.table import Column
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.chunk_records import HighWatermark, StoredChunk
from shardmerge.worker.snapshot.chunks import Bound
from shardmerge.worker.snapshot.key_order import bound_columns, is_numeric, key_bound, numbers
from shardmerge.worker.snapshot.source.chunk_source import ChunkSource

NEVER = RelayOffset(1 << 62, 0)
"""The watermark of keys that are not copied: no change counts for them."""

Places = Callable[[Sequence[Column], Sequence[Bound], Sequence[Bound]], list[int]]
"""For each key how many of the ascending bounds are not above it (see ChunkSource.places)."""


@dataclass(frozen=True)
class TableWatermarks:
    """High watermarks of one source table's chunks. Without slots, because the numbers are kept once computed.

    ``columns``: the table's leading key columns, of which bounds are made. ``bounds``: the upper bound of every chunk
    but the last. ``highs``: the high watermark of every chunk, in the same order; NEVER for keys that are not copied.
    """

    columns: tuple[Column, ...]
    bounds: tuple[Bound, ...]
    highs: tuple[RelayOffset, ...]
    lowest: RelayOffset
    highest: RelayOffset

    @staticmethod
    def of(plan: TablePlan, chunks: Sequence[tuple[StoredChunk, RelayOffset]]) -> TableWatermarks:
        """``chunks``: of the table, with their high watermarks, by number."""
        bounds = [item.chunk.upper for item, _ in chunks if not item.chunk.is_last]
        highs = [high for _, high in chunks]
        if len(bounds) == len(highs):
            highs.append(NEVER)
        elif bounds and len(highs) != len(bounds) + 1:
            raise AssertionError(f"{len(bounds)} bounds for {len(highs)} chunks")
        return TableWatermarks(bound_columns(plan.table), tuple(bounds), tuple(highs), min(highs), max(highs))

    @cached_property
    def _numbers(self) -> list[tuple[int, ...]]:
        """The bounds as numbers: a table of 10^9 rows has 120,000 of them, and each block of changes is compared."""
        return [numbers(bound) for bound in self.bounds]

    def places(self, keys: Sequence[Literals], compare: Places) -> list[int]:
        """For each key the number of its chunk. ``compare``: compares keys that are not integers."""
        found = [key_bound(self.columns, key) for key in keys]
        if is_numeric(self.columns):
            return [bisect_right(self._numbers, numbers(bound)) for bound in found]
        return compare(self.columns, self.bounds, found)


@dataclass(frozen=True, slots=True)
class Handover:
    """What the chunks hold, by number of the shard table. It is pickled into the lanes.

    ``lowest``: the lowest high watermark, where the stream must begin. ``done_at``: the highest one; from there on
    every change counts. A table that is copied in part leaves the stream at a statement, which counts as its highest.
    ``shards``: the numbers of the tables that are copied completely.
    """

    source: Endpoint
    source_id: str
    tables: Mapping[int, TableWatermarks]
    lowest: tuple[SourcePosition, RelayOffset]
    done_at: RelayOffset
    shards: frozenset[int] = frozenset()

    def copied_until(self) -> dict[int, RelayOffset]:
        """The highest high watermark of each table, by number; not of tables that are copied in part: all
        their chunks are older than the statement at which they leave the stream."""
        return {number: marks.highest for number, marks in self.tables.items() if marks.highest != NEVER}

    def apply(self, changes: list[RowChange], offset_of: Callable[[RowChange], RelayOffset]) -> list[RowChange]:
        """The changes that count, in order.

        ``changes`` must carry source keys; ``offset_of``: the relay offset of a change's event. An UPDATE that counts
        for only one of its keys becomes an INSERT or a DELETE. Changes of tables outside the snapshot always count.
        Keys that only the source can compare are sent to it. Raises catalogue errors of the source connection.
        """
        return self.apply_with(changes, offset_of, self._places)

    def apply_with(
        self, changes: Iterable[RowChange], offset_of: Callable[[RowChange], RelayOffset], places: Places
    ) -> list[RowChange]:
        """:meth:`apply` with another way to compare keys."""
        judged: list[_Candidate] = []
        questions: dict[int, dict[Literals, int]] = {}
        for change in changes:
            marks = self.tables.get(change.plan.shard)
            offset = offset_of(change)
            if marks is None or offset >= marks.highest:
                judged.append(_Candidate(change, None, offset))
            elif offset >= marks.lowest:
                judged.append(_Candidate(change, marks, offset))
                keys = questions.setdefault(change.plan.shard, {})
                for key in (change.source_key_before, change.source_key_after):
                    if key:
                        keys[key] = 0
        for number, keys in questions.items():
            keys.update(zip(keys, self.tables[number].places(tuple(keys), places), strict=True))
        kept: list[RowChange] = []
        for change, marks, offset in judged:
            if marks is None:
                kept.append(change)
                continue
            place = questions[change.plan.shard]
            left = _counted_part(
                change,
                before=bool(change.before) and offset >= marks.highs[place[change.source_key_before]],
                after=bool(change.after) and offset >= marks.highs[place[change.source_key_after]],
            )
            if left is not None:
                kept.append(left)
        return kept

    def _places(self, columns: Sequence[Column], bounds: Sequence[Bound], keys: Sequence[Bound]) -> list[int]:
        return _comparer(self.source, self.source_id)(columns, bounds, keys)


class _Candidate(NamedTuple):
    """A change that may count; with ``marks`` None it certainly does."""

    change: RowChange
    marks: TableWatermarks | None
    offset: RelayOffset


def _counted_part(change: RowChange, *, before: bool, after: bool) -> RowChange | None:
    """The part of a change that counts; None when nothing of it does."""
    if change.kind is not ChangeKind.UPDATE:
        return change if before or after else None
    if before and after:
        return change
    if before:
        return change.only_before()
    if after:
        return change.only_after()
    return None


def build_handover(
    stored: Iterable[StoredChunk],
    plans: Sequence[TablePlan],
    source: Endpoint,
    task: str,
    source_id: str,
    relay_id: str,
    locate: Callable[[SourcePosition], RelayOffset],
    interrupted: Mapping[int, SourcePosition] = MappingProxyType({}),
) -> Handover:
    """The hand-over of a finished snapshot of at least one table, in offsets of relay log ``relay_id``.

    ``stored``: every chunk, by table and number (SnapshotStore.read_chunks). ``locate``: Relay.locate; called once per
    position that is not known in this relay log, in the source's order. ``interrupted``: the tables that are copied in
    part, by number, with the statements at which they leave the stream. Raises INCOMPLETE and what ``locate`` raises.
    """
    chunks: dict[int, list[StoredChunk]] = {plan.shard: [] for plan in plans}
    for item in stored:
        if item.shard in chunks:
            chunks[item.shard].append(item)
    left = sum(
        sum(item.loaded is None for item in items) + (not items or not items[-1].chunk.is_last)
        for shard, items in chunks.items()
        if shard not in interrupted
    )
    if left:
        raise errors.snapshot.INCOMPLETE(task=task, source=source_id, left=left)
    marks = [item.loaded.high for items in chunks.values() for item in items if item.loaded is not None]
    statements = {shard: position for shard, position in interrupted.items() if shard in chunks}
    unknown = {high.position for high in marks if high.offset is None or high.relay_id != relay_id}
    wanted = sorted(unknown | {*statements.values()}, key=SourcePosition.file_order)
    offsets = {position: locate(position) for position in wanted}

    def offset_of(high: HighWatermark) -> RelayOffset:
        if high.offset is not None and high.relay_id == relay_id:
            return high.offset
        return offsets[high.position]

    tables = {
        plan.shard: TableWatermarks.of(
            plan,
            [(item, NEVER if item.loaded is None else offset_of(item.loaded.high)) for item in chunks[plan.shard]],
        )
        for plan in plans
    }
    placed = [(offset_of(high), high.position) for high in marks]
    placed += [(offsets[position], position) for position in statements.values()]
    lowest, position = min(placed, key=lambda item: item[0])
    done_at = max(offset for offset, _ in placed)
    whole = frozenset(plan.shard for plan in plans if plan.shard not in statements)
    return Handover(source, source_id, tables, (position, lowest), done_at, whole)


class _KeyComparer:
    """This process's connection on which one source compares keys. Opened when first needed; thread-safe."""

    def __init__(self, source: Endpoint, source_id: str) -> None:
        self._source = ChunkSource(source, source_id)
        self._lock = threading.Lock()

    def __call__(self, columns: Sequence[Column], bounds: Sequence[Bound], keys: Sequence[Bound]) -> list[int]:
        with self._lock:
            try:
                return self._source.places(columns, bounds, keys)
            except ShardmergeError as error:
                self._source.close()
                if not error.spec.retryable:
                    raise
                # The connection may have idled too long; a new one answers or raises the actual error.
                return self._source.places(columns, bounds, keys)


_COMPARERS: dict[tuple[Endpoint, str], _KeyComparer] = {}
_COMPARERS_LOCK = threading.Lock()


def _comparer(source: Endpoint, source_id: str) -> _KeyComparer:
    with _COMPARERS_LOCK:
        found = _COMPARERS.get((source, source_id))
        if found is None:
            found = _COMPARERS[(source, source_id)] = _KeyComparer(source, source_id)
        return found
