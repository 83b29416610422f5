"""Rows of one table behind its transform: from decoded literals to those of the target's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from worker.plan import TablePlan
from worker.rows import Literals
from worker.transform.client import Asking, Transformer

_NULL = b"NULL"


def as_read(plan: TablePlan) -> TablePlan:
    """The plan by which a table with a transform is decoded and read: its own columns, unmapped. Filters stay."""
    columns = plan.read_columns
    place = {column.index: at for at, column in enumerate(columns)}
    key = tuple(place[plan.columns[slot].index] for slot in plan.source_key)
    return replace(plan, columns=columns, key=key, staged=True, transform=None)


class TableView:
    """``plan``: of a table with a transform. One thread at a time."""

    def __init__(self, plan: TablePlan, asking: Asking) -> None:
        assert plan.transform is not None  # noqa: S101 - for the type checker: only such plans come here
        self._plan = plan
        read = as_read(plan)
        place = {column.index: at for at, column in enumerate(read.columns)}
        self._sources = tuple(place.get(column.index, -1) for column in plan.columns)
        self._computed = tuple(at for at, column in enumerate(plan.columns) if column.is_computed)
        self._transformer = Transformer(plan, [place[at] for at in plan.transform.given], asking)
        self._key = tuple((self._sources[slot], plan.columns[slot].target_name) for slot in plan.source_key)

    def passed(self, row: Literals) -> Literals:
        """The target's columns of a decoded row, unmapped; NULL where they are computed or constant."""
        return tuple([row[at] if at >= 0 else _NULL for at in self._sources])

    def seen(self, rows: Sequence[Literals], place: Callable[[int], object]) -> list[Literals | None]:
        """The target's columns of decoded rows, unmapped; None for those that the filter leaves out.

        ``place``: of a row, for messages. Raises TRANSFORM_FAILED.
        """
        found = self._transformer.computed(rows, place, lambda at: self._named(rows[at]))
        return [None if values is None else self._with(row, values) for row, values in zip(rows, found, strict=True)]

    def _with(self, row: Literals, values: Iterable[bytes]) -> Literals:
        result = list(self.passed(row))
        for slot, value in zip(self._computed, values, strict=True):
            result[slot] = value
        return tuple(result)

    def _named(self, row: Literals) -> str:
        pairs = [f"{name} = {row[at].decode('utf-8', 'backslashreplace')}" for at, name in self._key]
        return "(" + (", ".join(pairs) or "without a key") + ")"
