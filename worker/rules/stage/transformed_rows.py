"""Applies a table's transform: from decoded literals to those of the target, from uncomputed to whole rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.core.row_change import JoinedLiterals, Literals
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.uncomputed import ChangedRows, Inputs, UncomputedChange, UncomputedRow, completed_rows
from shardmerge.worker.rules.python.transformer import PythonTransformer
from shardmerge.worker.rules.transform.client import ComputesRows, Evaluate, Transformer

_NULL = b"NULL"


def as_read(plan: TablePlan) -> TablePlan:
    """The plan by which a table with a transform is decoded and read: its own columns, unmapped, in the source's
    character sets, with its filters."""
    columns = plan.read_columns
    place = {column.index: at for at, column in enumerate(columns)}
    key = tuple(place[plan.columns[slot].index] for slot in plan.source_key)
    return replace(plan, columns=columns, key=key, staged=True, transform=None, text_as_utf8=False)


def _picking(indexes: Sequence[int]) -> Callable[[Literals], Literals]:
    if len(indexes) == 1:
        [only] = indexes
        return lambda row: (row[only],)
    return itemgetter(*indexes)


class TableView:
    """The transform of one table's rows. ``plan``: of a table with a transform. ``sources``: for each target column its
    index in a decoded row; -1: the row lacks it. One thread at a time."""

    def __init__(self, plan: TablePlan, evaluator: Evaluate) -> None:
        assert plan.transform is not None  # noqa: S101 - for the type checker: only such plans come here
        self._plan = plan
        read = as_read(plan)
        place = {column.index: at for at, column in enumerate(read.columns)}
        self.sources = tuple(place.get(column.index, -1) for column in plan.columns)
        computed = [at for at, column in enumerate(plan.columns) if column.is_computed]
        # Columns are picked from a row followed by its computed values and a NULL for constant columns.
        computed_at = {at: len(read.columns) + number for number, at in enumerate(computed)}
        null = len(read.columns) + len(computed)
        self._picked = _picking([computed_at.get(at, null if of < 0 else of) for at, of in enumerate(self.sources)])
        self._nothing = (_NULL,) * len(computed)
        self._inputs = tuple(place[at] for at in plan.transform.inputs)
        function = plan.transform.python
        self._transformer: ComputesRows = (
            Transformer(plan, evaluator) if function is None else PythonTransformer(plan, function)
        )
        self._key = tuple(self.sources[slot] for slot in plan.source_key)
        self._key_names = tuple(plan.columns[slot].target_name for slot in plan.source_key)

    def pass_through(self, row: Literals) -> Literals:
        """The target's columns of a decoded row, unmapped; NULL for computed and constant ones."""
        return self._picked((*row, *self._nothing, _NULL))

    def transformed(self, rows: Sequence[Literals], place: Callable[[int], object]) -> list[Literals | None]:
        """The target's columns of decoded rows, unmapped; None for rows that the transform's filter removes.

        ``place``: of a row, for messages. Raises TRANSFORM_FAILED.
        """
        inputs: list[Inputs] = [tuple([text_of_literal(row[at]) for at in self._inputs]) for row in rows]
        found = self._transformer.computed(
            inputs, place, lambda at: self._named(tuple([rows[at][slot] for slot in self._key]))
        )
        passing = [True] * len(rows) if found.passing is None else found.passing
        computed = zip(*found.columns, strict=True) if found.columns else [()] * len(rows)
        picked = self._picked
        return [
            picked((*row, *values, _NULL)) if passes else None
            for row, passes, values in zip(rows, passing, computed, strict=True)
        ]

    def completed(self, rows: list[UncomputedRow], place: object) -> list[JoinedLiterals]:
        """The rows that the transform's filter lets pass, as written in VALUES. ``place``: of the rows, for messages.
        Raises TRANSFORM_FAILED."""
        found = self._transformer.computed(
            [row.inputs for row in rows], lambda _: place, lambda at: self._named(rows[at].key)
        )
        return completed_rows(rows, found.passing, found.columns)

    def complete(self, changes: list[UncomputedChange]) -> None:
        """Set the results of the changes. Raises TRANSFORM_FAILED."""
        changed = ChangedRows(changes)
        found = self._transformer.computed(
            changed.inputs,
            lambda at: changed.owner(at).position,
            lambda at: self._named(changed.rows[at].key),
        )
        changed.set_results(found.passing, found.columns)

    def _named(self, key: Literals) -> str:
        pairs = [
            f"{name} = {value.decode('utf-8', 'backslashreplace')}"
            for name, value in zip(self._key_names, key, strict=True)
        ]
        return "(" + (", ".join(pairs) or "without a key") + ")"
