"""Computes rows with a transformer, from the literals of its input columns to those of its computed columns."""

from __future__ import annotations

from collections.abc import Sequence

from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.rules.transform.client import Transformer


def computed_rows(made: Transformer, rows: Sequence[Literals]) -> list[Literals | None]:
    """The computed values of each row; None: the filter removes it. In errors, its number is the position and the key
    of a row."""
    inputs = [tuple(map(text_of_literal, row)) for row in rows]
    found = made.computed(inputs, lambda at: at, str)
    passing = [True] * len(rows) if found.passing is None else found.passing
    values = zip(*found.columns, strict=True) if found.columns else [()] * len(rows)
    return [row if passes else None for passes, row in zip(passing, values, strict=True)]
