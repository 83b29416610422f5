# cython: language_level=3
"""Rows and changes for the target whose computed columns are still open: a transform computes them later, in batches.

The decoder and the chunk reader write everything else of them, as they do for tables without a transform. Compiled by
Cython (types of the classes in worker/core/uncomputed.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

import cython

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import JoinedLiterals, Literals, RowChange
from shardmerge.worker.core.table_plan import TablePlan

Inputs = tuple[bytes | None, ...]
"""The texts of the columns that a transform's expressions use, in the order of the plan; None for NULL."""
Parts = tuple[bytes, ...]
Columns = list[list[bytes]]
"""For each computed column the literals of all rows."""


@cython.final
@cython.cclass
class UncomputedRow:
    """One row. ``parts``: the row's (mapped) literals as written in VALUES, cut wherever a computed value belongs, so
    that there is one part more than computed columns; () where the row itself is not needed. ``key``: the literals of
    the source's key, for messages. ``size``: about how many bytes it has."""

    def __init__(self, parts: Parts, inputs: Inputs, key: Literals) -> None:
        self.parts = parts
        self.inputs = inputs
        self.key = key
        self.size = sum(map(len, parts)) + sum(len(text) for text in inputs if text is not None)


@cython.final
@cython.cclass
class UncomputedChange:
    """One change of a row of a table with a key, of which one side at least belongs to the lane.

    ``plan``: by which the target's rows are written; (``file``, ``pos``): end of its event at the source. ``before``:
    None for an INSERT, ``after``: None for a DELETE; ``before_key``, ``after_key`` (mapped) likewise.
    ``owns_before``, ``owns_after``: whether that key belongs to the lane.
    """

    def __init__(
        self,
        plan: TablePlan,
        file: str,
        pos: int,
        before: UncomputedRow | None,
        after: UncomputedRow | None,
        before_key: JoinedLiterals | None,
        after_key: JoinedLiterals | None,
        owns_before: bool,
        owns_after: bool,
    ) -> None:
        self.plan = plan
        self.file = file
        self.pos = pos
        self.before = before
        self.after = after
        self.before_key = before_key
        self.after_key = after_key
        self.owns_before = owns_before
        self.owns_after = owns_after

    @property
    def position(self) -> SourcePosition:
        return SourcePosition(self.file, self.pos)

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        before: UncomputedRow | None = self.before
        after: UncomputedRow | None = self.after
        return (0 if before is None else before.size) + (0 if after is None else after.size)


StagedChange = RowChange | UncomputedChange
"""A change that the decoder leaves to the row stage."""


@cython.final
@cython.cclass
class ChangedRows:
    """The rows that have to be evaluated for ``changes``, in order. A row after a change that has the same inputs as
    the one before it has the same result, and is not evaluated again."""

    def __init__(self, changes: list[UncomputedChange]) -> None:
        self.changes = changes
        self.rows: list[UncomputedRow] = []
        self._before: list[int] = []
        self._after: list[int] = []
        change: UncomputedChange
        before: UncomputedRow | None
        after: UncomputedRow | None
        for change in changes:
            before = change.before
            after = change.after
            self._before.append(len(self.rows))
            if before is not None:
                self.rows.append(before)
            if after is not None and (before is None or before.inputs != after.inputs):
                self.rows.append(after)
            self._after.append(len(self.rows) - 1)

    def owner(self, row: int) -> UncomputedChange:
        """The change that a row of ``rows`` belongs to."""
        return next(change for change, last in zip(self.changes, self._after, strict=True) if row <= last)

    def results(
        self, passing: Sequence[bool] | None, columns: Columns
    ) -> list[tuple[bool, JoinedLiterals | None]]:
        """For each change whether the row before it passes the filter, and the row after it as written in VALUES; None:
        there is none that passes. ``passing``: whether each of ``rows`` does, None if there is no filter; ``columns``:
        the literals of each computed column."""
        found: list[tuple[bool, bytes | None]] = []
        change: UncomputedChange
        after: UncomputedRow | None
        number: cython.Py_ssize_t
        at: cython.Py_ssize_t
        has_before: cython.bint
        image: bytes | None
        for number in range(len(self.changes)):
            change = self.changes[number]
            after = change.after
            at = self._before[number]
            has_before = change.before is not None and (passing is None or bool(passing[at]))
            at = self._after[number]
            image = None
            if after is not None and (passing is None or passing[at]):
                image = _completed(after.parts, columns, at)
            found.append((has_before, image))
        return found


def completed_rows(
    rows: list[UncomputedRow], passing: Sequence[bool] | None, columns: Columns
) -> list[JoinedLiterals]:
    """The rows that pass, as written in VALUES; the arguments are those of :class:`ChangedRows`."""
    found: list[bytes] = []
    row: UncomputedRow
    number: cython.Py_ssize_t
    for number in range(len(rows)):
        if passing is None or passing[number]:
            row = rows[number]
            found.append(_completed(row.parts, columns, number))
    return found


@cython.cfunc
def _completed(parts: Parts, columns: Columns, row: cython.Py_ssize_t) -> bytes:
    """The parts of a row with the values of the computed columns between them."""
    pieces: list[bytes] = []
    column: list[bytes]
    number: cython.Py_ssize_t
    for number in range(len(columns)):
        column = columns[number]
        pieces.append(parts[number])
        pieces.append(column[row])
    pieces.append(parts[len(columns)])
    return b"".join(pieces)
