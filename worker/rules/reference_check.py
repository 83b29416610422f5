"""Finds columns that refer to a column with another mapping. Pure."""

from __future__ import annotations

from shardmerge.worker.core.sql.foreign_keys import ForeignKey
from shardmerge.worker.rules.rules import Rules


def wrongly_mapped(rules: Rules, schema: str, table: str, key: ForeignKey) -> tuple[str, str] | None:
    """The first column of foreign key ``key`` of ``schema``.``table`` with another mapping than the column to which it
    refers, and that column; None: there is none. Of a key without names of columns ("" then), any mapped column of the
    other table counts. Raises what :meth:`Rules.mapping_by_name` raises."""
    other = key.schema or schema
    if rules.route(other, key.table) is None:
        return None
    if key.columns:
        for column, to in zip(key.columns, key.to_columns, strict=False):
            if rules.mapping_by_name(schema, table, column) != rules.mapping_by_name(other, key.table, to):
                return column, to
        return None
    return next((("", to) for to in key.to_columns if rules.mapping_by_name(other, key.table, to) is not None), None)
