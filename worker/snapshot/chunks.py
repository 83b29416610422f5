"""Defines chunks, consecutive ranges of a table's key, and cuts integer keys into even ranges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MIN_FACTOR = 0.05
MAX_FACTOR = 1000.0
"""Distribution factor (max - min + 1) / rows between which integer keys are cut by arithmetic."""

Bound = tuple[bytes, ...]
"""A place between keys: one SQL literal per bound column of the table, () for an open end."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Keys from ``lower`` (inclusive) to ``upper`` (exclusive), by the source server's order.

    ``number`` counts from 0 along the key; chunk 0 is open below, the table's last one open above.
    """

    number: int
    lower: Bound
    upper: Bound

    @property
    def is_last(self) -> bool:
        return not self.upper


WHOLE = Chunk(0, (), ())
"""The one chunk of a table that is not cut."""


def cut(bounds: Iterable[Bound], last: Chunk | None = None) -> Iterator[Chunk]:
    """The chunks between ``bounds`` (ascending), after ``last``: they cover every key after it exactly once."""
    if last is not None and last.is_last:
        return
    number = 0 if last is None else last.number + 1
    lower: Bound = () if last is None else last.upper
    for bound in bounds:
        yield Chunk(number, lower, bound)
        number, lower = number + 1, bound
    yield Chunk(number, lower, ())


def even_step(minimum: int, maximum: int, rows: int, chunk_rows: int) -> int | None:
    """How many integers wide a chunk of about ``chunk_rows`` rows is; None when the keys are not evenly spread.

    ``rows``: the server's estimate. This is Flink CDC's rule: the factor separates dense keys from keys with gaps.
    """
    if rows <= chunk_rows:
        return None
    factor = (maximum - minimum + 1) / rows
    if not MIN_FACTOR <= factor <= MAX_FACTOR:
        return None
    return max(1, int(chunk_rows * factor))


def even_bounds(minimum: int, maximum: int, step: int) -> Iterator[int]:
    """``minimum + step``, ``minimum + 2 * step`` … up to ``maximum``."""
    yield from range(minimum + step, maximum + 1, step)


def rows_per_chunk(chunk_rows: int, row_estimate: int, byte_estimate: int, max_bytes: int) -> int:
    """``chunk_rows``, or fewer where rows are so wide that a chunk would exceed ``max_bytes``."""
    if row_estimate <= 0 or byte_estimate <= 0:
        return chunk_rows
    row_bytes = max(1, byte_estimate // row_estimate)
    return max(1, min(chunk_rows, max_bytes // row_bytes))
