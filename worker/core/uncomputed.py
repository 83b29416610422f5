# cython: language_level=3
"""Rows and changes for the target whose computed columns are still open: a transform computes them later, in batches.

The decoder and the chunk reader write everything else of them, as they do for tables without a transform. Compiled by
Cython (types of the classes in worker/core/uncomputed.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

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
@cython.no_gc
@cython.cclass
class UncomputedRow:
    """One row. ``parts``: the row's (mapped) literals as written in VALUES, cut wherever a computed value belongs, so
    that there is one part more than computed columns; () where the row itself is not needed. ``key``: the literals of
    the source's key, for messages. ``size``: about how many bytes it has."""

    def __init__(self, parts: Parts, inputs: Inputs, key: Literals, size: int) -> None:
        self.parts = parts
        self.inputs = inputs
        self.key = key
        self.size = size


@cython.final
@cython.no_gc
@cython.cclass
class UncomputedChange:
    """One change of a row of a table with a key, of which one side at least belongs to the lane.

    ``plan``: by which the target's rows are written; (``file``, ``pos``): end of its event at the source. ``before``:
    None for an INSERT, ``after``: None for a DELETE; ``before_key``, ``after_key`` (mapped): b"" there.
    ``owns_before``, ``owns_after``: whether that key belongs to the lane. ``size``: about how many bytes it has.

    :class:`ChangedRows` sets the result. ``has_before``: the target has the row before the change; ``image``: the row
    after it as written in VALUES, None if the target is to have none.
    """

    def __init__(
        self,
        plan: TablePlan,
        file: str,
        pos: int,
        before: UncomputedRow | None,
        after: UncomputedRow | None,
        before_key: JoinedLiterals,
        after_key: JoinedLiterals,
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
        self.size = (0 if before is None else before.size) + (0 if after is None else after.size)
        self.has_before = False
        self.image: JoinedLiterals | None = None

    @property
    def position(self) -> SourcePosition:
        return SourcePosition(self.file, self.pos)


StagedChange = RowChange | UncomputedChange
"""A change that the decoder leaves to the row stage."""


def by_plan(changes: list[UncomputedChange]) -> list[list[UncomputedChange]]:
    """The changes of each plan, in order; the plans in the order of their first changes."""
    found: dict[int, list[UncomputedChange]] = {}
    group: list[UncomputedChange] = []
    last: object = None
    change: UncomputedChange
    for change in changes:
        if change.plan is not last:
            last = change.plan
            group = found.setdefault(id(last), [])
        group.append(change)
    return list(found.values())


@cython.final
@cython.cclass
class ChangedRows:
    """The rows that have to be evaluated for ``changes``, in order. A row after a change that has the same inputs as
    the one before it has the same result, and is not evaluated again. ``inputs``: of each row of ``rows``."""

    def __init__(self, changes: list[UncomputedChange]) -> None:
        self.changes = changes
        rows: list[UncomputedRow] = []
        inputs: list[Inputs] = []
        places: list[int] = []
        change: UncomputedChange
        before: UncomputedRow | None
        after: UncomputedRow | None
        count: cython.Py_ssize_t = 0
        for change in changes:
            before = change.before
            after = change.after
            places.append(count)
            if before is not None:
                rows.append(before)
                inputs.append(before.inputs)
                count += 1
            if after is not None and (before is None or before.inputs != after.inputs):
                rows.append(after)
                inputs.append(after.inputs)
                count += 1
        places.append(count)
        self.rows = rows
        self.inputs = inputs
        self._places = places

    def owner(self, row: int) -> UncomputedChange:
        """The change that a row of ``rows`` belongs to."""
        return next(change for change, end in zip(self.changes, self._places[1:], strict=True) if row < end)

    def set_results(self, passing: list[bool] | None, columns: Columns) -> None:
        """Set the results of the changes. ``passing``: whether each of ``rows`` passes the filter, None if there is no
        filter; ``columns``: the literals of each computed column."""
        change: UncomputedChange
        after: UncomputedRow | None
        places: list[int] = self._places
        number: cython.Py_ssize_t
        at: cython.Py_ssize_t
        for number in range(len(self.changes)):
            change = self.changes[number]
            at = places[number]
            after = change.after
            change.has_before = change.before is not None and (passing is None or passing[at] is True)
            at = places[number + 1] - 1
            if after is not None and (passing is None or passing[at] is True):
                change.image = _completed(after.parts, columns, at)


def completed_rows(rows: list[UncomputedRow], passing: list[bool] | None, columns: Columns) -> list[JoinedLiterals]:
    """The rows that pass, as written in VALUES; the arguments are those of :class:`ChangedRows`."""
    found: list[bytes] = []
    row: UncomputedRow
    number: cython.Py_ssize_t
    for number in range(len(rows)):
        if passing is None or passing[number] is True:
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
