"""Fix-up: turns a chunk as a SELECT saw it into the chunk at its high watermark. Pure.

The SELECT saw some state between the low and the high watermark. Whatever it saw, a key that an event of
that range touches ends as its last event leaves it, and every other key is as the SELECT saw it (DBLog,
arXiv:2010.12597, section 4). Keys are compared as literal bytes: each spelling of a value is a key of its own,
which also holds where a collation takes two spellings for equal, for then only one of them is left at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from worker.plan import TablePlan
from worker.rows import Literals, RowChange

Inside = Callable[[Sequence[Literals]], Sequence[bool]]
"""For each source key (unmapped literals): does it belong to the chunk?"""


@dataclass(frozen=True, slots=True)
class _Last:
    """What the last event of a key leaves: its source key and row."""

    source_key: Literals
    image: Literals


def key_of(plan: TablePlan, image: Literals) -> Literals:
    """The identifying key in a written row."""
    return tuple(image[index] for index in plan.key)


def fix_up(rows: dict[Literals, Literals], plan: TablePlan, changes: Iterable[RowChange], inside: Inside) -> int:
    """Bring ``rows`` (key → row) up to the high watermark, in place; the number of keys that events touched.

    ``changes``: every change of this table from the low to the high watermark, in order, with source keys.
    ``inside`` is asked, once, about the keys that are new to the chunk: inserted ones and ones that an UPDATE
    moved here.
    """
    last: dict[Literals, _Last | None] = {}
    for change in changes:
        if change.before:
            last[key_of(plan, change.before)] = None
        if change.after:
            last[key_of(plan, change.after)] = _Last(change.source_key_after, change.after)
    new: list[tuple[Literals, _Last]] = []
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
