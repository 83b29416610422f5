"""Where a batch ends at one source, and where it is divided among tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from shardmerge.worker.core.position import SourcePosition

LEAST_BYTES = 4 << 20
"""Of a part: a task has its costs."""


def cuts_of(size: int, ends: Sequence[tuple[int, SourcePosition]], tasks: int) -> tuple[SourcePosition, ...]:
    """Where a batch of ``size`` bytes is divided into at most ``tasks`` parts of about the same size. ``ends``: ends of
    groups in it, each with the bytes before it."""
    parts = min(tasks, size // LEAST_BYTES)
    found: list[SourcePosition] = []
    for part in range(1, parts):
        wanted = size * part // parts
        after = next((place for before, place in ends if before >= wanted), None)
        if after is not None and after not in found:
            found.append(after)
    return tuple(found)


def parts_of(
    start: SourcePosition, end: SourcePosition, cuts: Sequence[SourcePosition]
) -> list[tuple[SourcePosition, SourcePosition]]:
    """The parts of a batch: begin and end of each; [] for an empty batch."""
    if start.file_order() >= end.file_order():
        return []
    inner = [cut for cut in cuts if start.file_order() < cut.file_order() < end.file_order()]
    places = [start, *inner, end]
    return list(pairwise(places))
