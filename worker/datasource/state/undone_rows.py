"""Replaces the rows of a chunk that were changed after the position by the rows that were there at the position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.datasource.arrow_library import pa, pc
from shardmerge.worker.datasource.state.undo import Before
from shardmerge.worker.datasource.values.arrow_values import texts_array
from shardmerge.worker.datasource.values.literal_texts import SAME_TEXT, text_of
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.key_order import bound_columns

np: Any = numpy  # without types

Texts = list[Any]
"""Rows as one array per column that is read."""

InChunk = Callable[[TablePlan, Chunk, Sequence[Literals]], Sequence[bool]]
"""For each key: does it belong to the chunk, by the source server's order?"""


@dataclass(slots=True)
class TableUndo:
    """Undoes the changes of one table; one thread at a time. ``before`` may get further keys, and loses none."""

    plan: TablePlan
    before: Before
    _keys: list[Literals] = field(init=False, default_factory=list[Literals])
    _first: Any = field(init=False, default=None)
    _codecs: list[Any] = field(init=False, default_factory=list[Any])

    def undone(self, batches: Sequence[Texts], chunk: Chunk, in_chunk: InChunk) -> list[Texts]:
        """The chunk's rows at the position. ``batches``: as a later SELECT read them."""
        possible = self._possible(chunk)
        if not possible:
            return list(batches)
        seen: set[Literals] = set()
        result: list[Texts] = []
        for batch in batches:
            changed = self._changed(batch, possible)
            if changed:
                seen.update(changed.values())
                kept = np.ones(len(batch[0]), dtype=bool)
                kept[list(changed)] = False
                keep = pa.array(kept)
                batch = [texts.filter(keep) for texts in batch]  # noqa: PLW2901
            result.append(batch)
        rows = [self.before[key] for key in seen if self.before[key]]
        others = [key for key in possible if key not in seen and self.before[key]]
        if others:
            belongs = in_chunk(self.plan, chunk, others)
            rows += [self.before[key] for key, here in zip(others, belongs, strict=True) if here]
        if rows:
            result.append(self._texts(rows))
        return result

    def _possible(self, chunk: Chunk) -> list[Literals]:
        """Keys with changes, without many of those that are outside of the chunk."""
        columns = bound_columns(self.plan.table)
        if len(self._keys) != len(self.before):
            self._keys = list(self.before)
            self._first = None
        if not columns or columns[0].kind is not ValueKind.INTEGER or not (chunk.lower or chunk.upper):
            return self._keys
        if self._first is None:
            dtype = np.uint64 if columns[0].unsigned else np.int64
            self._first = np.array([int(key[0]) for key in self._keys], dtype=dtype)
        inside = np.ones(len(self._keys), dtype=bool)
        if chunk.lower:
            inside &= self._first >= self._first.dtype.type(int(chunk.lower[0]))
        if chunk.upper:
            inside &= self._first <= self._first.dtype.type(int(chunk.upper[0]))
        return [self._keys[at] for at in np.flatnonzero(inside)]

    def _changed(self, batch: Texts, possible: Sequence[Literals]) -> dict[int, Literals]:
        """By row: the key, of each row whose key has changes."""
        plan = self.plan
        if not self._codecs:
            codecs = RowWriter(plan, plan.source).codecs
            self._codecs = [codecs[slot] for slot in plan.key]
        found: Any = None
        for place, slot in enumerate(plan.key):
            column = plan.columns[slot].column
            if column.kind in SAME_TEXT:
                wanted = texts_array(list({text_of(column)(key[place]) for key in possible}))
                same = pc.is_in(batch[slot], value_set=wanted)
                found = same if found is None else pc.and_(found, same)
        rows = range(len(batch[0])) if found is None else np.flatnonzero(found.to_numpy(zero_copy_only=False))
        changed: dict[int, Literals] = {}
        for row in rows:
            key = tuple(
                [
                    codec.of_text(batch[slot][row].as_py(), False)
                    for codec, slot in zip(self._codecs, plan.key, strict=True)
                ]
            )
            if key in self.before:
                changed[int(row)] = key
        return changed

    def _texts(self, rows: Sequence[Literals]) -> Texts:
        made: Texts = []
        for slot, written in enumerate(self.plan.columns):
            convert = text_of(written.column)
            made.append(texts_array([convert(row[slot]) for row in rows]))
        return made
