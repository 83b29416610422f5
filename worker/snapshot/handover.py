"""The hand-over from snapshot to stream: which changes the chunks hold already (I5).

The stream starts at the lowest high watermark. Until it has passed the highest, a change counts for a key only if it
is at or beyond the high watermark of the chunk that the key belongs to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proto import errors
from proto.errors import ShardmergeError
from worker.connection import Endpoint
from worker.plan import TablePlan
from worker.position import RelayOffset, SourcePosition
from worker.rows import ChangeKind, Literals, RowChange
from worker.snapshot.chunks import Bound
from worker.snapshot.order import bound_columns, key_bound
from worker.snapshot.records import Mark, StoredChunk
from worker.snapshot.source import ChunkSource
from worker.table import Column

Places = Callable[[Sequence[Column], Sequence[Bound], Sequence[Bound]], list[int]]
"""For each key how many of the ascending bounds are not above it (see ChunkSource.places)."""


@dataclass(frozen=True, slots=True)
class TableMarks:
    """One source table's chunks: their upper ``bounds`` but the last one's, their high watermarks in order.

    ``columns``: those that bounds are made of; the table's leading key columns.
    """

    columns: tuple[Column, ...]
    bounds: tuple[Bound, ...]
    highs: tuple[RelayOffset, ...]
    lowest: RelayOffset
    highest: RelayOffset


@dataclass(frozen=True, slots=True)
class Handover:
    """What the chunks hold, by (schema, table). Pickles into the lanes.

    ``lowest``: the lowest high watermark, where the stream must begin; ``done_at``: the highest, from where on
    every change counts. ``shards``: the tables' numbers.
    """

    source: Endpoint
    source_id: str
    tables: Mapping[tuple[str, str], TableMarks]
    lowest: tuple[SourcePosition, RelayOffset]
    done_at: RelayOffset
    shards: frozenset[int] = frozenset()

    def apply(self, changes: list[RowChange], offset_of: Callable[[RowChange], RelayOffset]) -> list[RowChange]:
        """The changes that count, in order.

        ``changes`` must carry source keys; ``offset_of``: the relay offset of a change's event. An UPDATE that counts
        for only one of its keys becomes an INSERT or a DELETE. Tables that were not in the snapshot always count.
        Keys that only the source can compare are asked of it. Raises catalogue errors of the source connection.
        """
        return self.apply_with(changes, offset_of, self._ask)

    def apply_with(
        self, changes: Iterable[RowChange], offset_of: Callable[[RowChange], RelayOffset], places: Places
    ) -> list[RowChange]:
        """:meth:`apply` with another way to compare keys."""
        judged: list[_Judged] = []
        questions: dict[tuple[str, str], dict[Literals, int]] = {}
        for change in changes:
            name = (change.plan.table.schema, change.plan.table.name)
            marks = self.tables.get(name)
            offset = offset_of(change)
            if marks is None or offset >= marks.highest:
                judged.append(_Judged(change, None, offset))
            elif offset >= marks.lowest:
                judged.append(_Judged(change, marks, offset))
                keys = questions.setdefault(name, {})
                for key in (change.source_key_before, change.source_key_after):
                    if key:
                        keys[key] = 0
        for name, keys in questions.items():
            marks = self.tables[name]
            found = places(marks.columns, marks.bounds, [key_bound(marks.columns, key) for key in keys])
            keys.update(zip(keys, found, strict=True))
        kept: list[RowChange] = []
        for change, marks, offset in judged:
            if marks is None:
                kept.append(change)
                continue
            place = questions[(change.plan.table.schema, change.plan.table.name)]
            left = _counted(
                change,
                before=bool(change.before) and offset >= marks.highs[place[change.source_key_before]],
                after=bool(change.after) and offset >= marks.highs[place[change.source_key_after]],
            )
            if left is not None:
                kept.append(left)
        return kept

    def _ask(self, columns: Sequence[Column], bounds: Sequence[Bound], keys: Sequence[Bound]) -> list[int]:
        return _asker(self.source, self.source_id)(columns, bounds, keys)


class _Judged(NamedTuple):
    """A change that may count; ``marks`` None: it does."""

    change: RowChange
    marks: TableMarks | None
    offset: RelayOffset


def _counted(change: RowChange, *, before: bool, after: bool) -> RowChange | None:
    """The part of a change that counts."""
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
) -> Handover:
    """The hand-over of a finished snapshot of at least one table, in offsets of relay log ``relay_id``.

    ``stored``: every chunk, by table and number (SnapshotStore.read_chunks). ``locate``: Relay.locate; asked once per
    position that is not known in this relay log, in the source's order. Raises INCOMPLETE and what ``locate`` raises.
    """
    chunks: dict[int, list[StoredChunk]] = {plan.shard: [] for plan in plans}
    marks: dict[SourcePosition, Mark] = {}
    left = 0
    for item in stored:
        if item.shard not in chunks:
            continue
        chunks[item.shard].append(item)
        if item.loaded is None:
            left += 1
        elif item.loaded.high.offset is None or item.loaded.high.relay_id != relay_id:
            position = item.loaded.high.position
            marks[position] = item.loaded.high
    left += sum(1 for items in chunks.values() if not items or not items[-1].chunk.is_last)
    if left:
        raise errors.snapshot.INCOMPLETE(task=task, source=source_id, left=left)
    wanted = sorted((mark.position for mark in marks.values()), key=SourcePosition.file_order)
    offsets = {position: locate(position) for position in wanted}

    def offset_of(high: Mark) -> RelayOffset:
        if high.offset is not None and high.relay_id == relay_id:
            return high.offset
        return offsets[high.position]

    tables: dict[tuple[str, str], TableMarks] = {}
    placed: list[tuple[RelayOffset, SourcePosition]] = []
    for plan in plans:
        marks_of = [item.loaded.high for item in chunks[plan.shard] if item.loaded is not None]
        highs = tuple(offset_of(high) for high in marks_of)
        placed += [(offset, high.position) for offset, high in zip(highs, marks_of, strict=True)]
        bounds = tuple(item.chunk.upper for item in chunks[plan.shard][:-1])
        tables[(plan.table.schema, plan.table.name)] = TableMarks(
            bound_columns(plan.table), bounds, highs, min(highs), max(highs)
        )
    lowest, position = min(placed, key=lambda item: item[0])
    done_at = max(offset for offset, _ in placed)
    return Handover(source, source_id, tables, (position, lowest), done_at, frozenset(plan.shard for plan in plans))


class _Asker:
    """This process's connection for comparing keys at one source. Opened when first needed; thread-safe."""

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
                # The connection may have idled too long; a new one answers or tells why not.
                return self._source.places(columns, bounds, keys)

    def close(self) -> None:
        with self._lock:
            self._source.close()


_ASKERS: dict[tuple[Endpoint, str], _Asker] = {}
_ASKERS_LOCK = threading.Lock()


def _asker(source: Endpoint, source_id: str) -> _Asker:
    with _ASKERS_LOCK:
        found = _ASKERS.get((source, source_id))
        if found is None:
            found = _ASKERS[(source, source_id)] = _Asker(source, source_id)
        return found


def close_askers() -> None:
    """Close this process's connections of :meth:`Handover.apply`."""
    with _ASKERS_LOCK:
        askers = list(_ASKERS.values())
        _ASKERS.clear()
    for asker in askers:
        asker.close()
