"""The target's columns of a table with a transform: which are written from the row, and which are still open."""

from __future__ import annotations

from shardmerge.worker.binlog.rows.charsets import is_utf8
from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan

OpenColumn = tuple[ColumnCodec | None, int]
"""The codec that writes the column for the target (None: the transform computes it), and the column's index among those
that are read (-1: none)."""


def open_columns(read: TablePlan, plan: TablePlan, codecs: list[ColumnCodec]) -> list[OpenColumn]:
    """One for each column of ``plan``. ``read``: the plan by which the rows are read, unmapped; ``codecs``: one for
    each of its columns, which is used where the target gets the value as it is."""
    places = {column.index: at for at, column in enumerate(read.columns)}
    found: list[OpenColumn] = []
    for slot, column in enumerate(plan.columns):
        at = places.get(column.index, -1)
        if column.is_computed:
            found.append((None, -1))
        elif at >= 0 and not changes_form(plan, column):
            found.append((codecs[at], at))
        else:
            found.append(
                (
                    ColumnCodec(
                        plan.table,
                        column.column,
                        slot,
                        -1,
                        column.mapping,
                        plan.source,
                        plan.text_as_utf8,
                        slot in plan.key,
                    ),
                    at,
                )
            )
    return found


def changes_form(plan: TablePlan, column: ColumnPlan) -> bool:
    """Whether the literals of a column for the target differ from those at the source."""
    if column.mapping is not None:
        return True
    return plan.text_as_utf8 and column.column.kind is ValueKind.STRING and not is_utf8(column.column.charset)


def input_places(read: TablePlan, plan: TablePlan) -> list[int]:
    """The indexes, among the columns that are read, of those that the transform's expressions use."""
    places = {column.index: at for at, column in enumerate(read.columns)}
    return [] if plan.transform is None else [places[index] for index in plan.transform.inputs]
