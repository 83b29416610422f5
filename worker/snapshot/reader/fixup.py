"""Fix-up: turns a chunk as a SELECT saw it into the chunk at its high watermark. Pure.

The SELECT saw some state between the low and the high watermark. Whatever it saw, a key that an event of
that range touches ends as its last event leaves it, and every other key is as the SELECT saw it (DBLog,
arXiv:2010.12597, section 4). Keys are compared as literal bytes: each spelling of a value is a key of its own.
This is also correct where a collation treats two spellings as equal, because only one of them exists at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.row_change import Literals, RowChange
from shardmerge.worker.core.table_plan import TablePlan

InChunk = Callable[[Sequence[Literals]], Sequence[bool]]
"""For each source key (unmapped literals): does it belong to the chunk?"""


@dataclass(frozen=True, slots=True)
class _LastImage:
    """The source key and the row that the last event of a key leaves."""

    source_key: Literals
    image: Literals


def key_of(plan: TablePlan, image: Literals) -> Literals:
    """The identifying key in a written row."""
    return tuple(image[index] for index in plan.key)


def fix_up(rows: dict[Literals, Literals], plan: TablePlan, changes: Iterable[RowChange], inside: InChunk) -> int:
    """Bring ``rows`` (key → row) up to the high watermark, in place; returns the number of keys that events touched.

    ``changes``: every change of this table from the low to the high watermark, in order, with source keys.
    ``inside`` is called once, with the keys that are new to the chunk: inserted ones and ones that an UPDATE
    moved into it.
    """
    last: dict[Literals, _LastImage | None] = {}
    for change in changes:
        if change.before:
            last[key_of(plan, change.before)] = None
        if change.after:
            last[key_of(plan, change.after)] = _LastImage(change.source_key_after, change.after)
    new: list[tuple[Literals, _LastImage]] = []
    for key, left in last.items():
        if left is None:
            rows.pop(key, None)
        elif key in rows:
            rows[key] = left.image
        else:
            new.append((key, left))
    if new:
        belongs = inside([left.source_key for _, left in new])
        for (key, left), here in zip(new, belongs, strict=True):
            if here:
                rows[key] = left.image
    return len(last)
