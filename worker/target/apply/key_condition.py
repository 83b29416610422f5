"""Makes conditions that find rows by their keys, in forms for which every server uses the key's index. Pure.

What the servers do with other forms (MariaDB 10.11, MySQL 9.7; tests/integration/test_key_statements.py):

* One tuple, ``(a, b) = (1, 2)`` or ``(a, b) IN ((1, 2))``: MariaDB reads the whole table for a DELETE or UPDATE, and
  locks the rows that it reads. ``a = 1 AND b = 2`` reads one row.
* Tuples with texts: MariaDB compares a text within a tuple byte by byte, without the conversion that it makes of the
  same text alone. Where the literal has another character set than the target's column, it finds no row. For an ENUM or
  SET at the start of the key it reads the whole table. So texts are not in tuples.
* More than 200 tuples or alternatives: see :data:`MOST_TUPLES`.

TiDB 8.4 reads by the key in all forms used here, except where the key has a SET: then it reads the whole table
(tests/integration/test_tidb_key_statements.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from shardmerge.worker.binlog.rows.literal_text import split_key
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.row_change import JoinedLiterals, Literals
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan

MOST_TUPLES = 200
"""Most keys of several columns in one condition. The range analysis of the servers is quadratic in them where a second
index holds the same columns: 2,000 tuples took MariaDB 10.11 4.8 s, ten times 200 take 0.1 s."""

_TEXTS = frozenset({ValueKind.STRING, ValueKind.ENUM, ValueKind.SET})


def key_condition(plan: TablePlan, keys: Sequence[JoinedLiterals]) -> bytes:
    """The rows of the target that have one of ``keys``; at most :data:`MOST_TUPLES` if the key has several columns."""
    columns = [plan.columns[index] for index in plan.key]
    names = [quote_name(item.target_name).encode() for item in columns]
    if len(names) == 1:
        return names[0] + b" IN (" + b",".join(keys) + b")"
    if _fits_tuples(columns, len(keys)):
        return b"(" + b",".join(names) + b") IN ((" + b"),(".join(keys) + b"))"
    return _alternatives(names, [split_key(key, len(names)) for key in keys])


def source_key_condition(plan: TablePlan, keys: Sequence[Literals]) -> bytes:
    """The rows of the shard table that have one of ``keys``, of its own columns; as many as for
    :func:`key_condition`."""
    columns = [plan.columns[index] for index in plan.source_key]
    return values_condition(columns, [item.column.name for item in columns], keys)


def values_condition(columns: Sequence[ColumnPlan], names: Sequence[str], values: Sequence[Literals]) -> bytes:
    """The rows that have one of ``values`` in ``columns``, under ``names``; as many as for :func:`key_condition`."""
    quoted = [quote_name(name).encode() for name in names]
    if len(quoted) > 1 and not _fits_tuples(columns, len(values)):
        return _alternatives(quoted, values)
    joined = [b",".join(one) for one in values]
    if len(quoted) == 1:
        return quoted[0] + b" IN (" + b",".join(joined) + b")"
    return b"(" + b",".join(quoted) + b") IN ((" + b"),(".join(joined) + b"))"


def _fits_tuples(columns: Sequence[ColumnPlan], count: int) -> bool:
    return count > 1 and not any(item.column.kind in _TEXTS for item in columns)


def _alternatives(names: Sequence[bytes], values: Sequence[Sequence[bytes]]) -> bytes:
    """``(b = 'x' AND a IN (1,2)) OR (…)``: values that differ in one column only are one alternative, because servers
    analyse a list faster than alternatives. Often there is only one: keys of one shard table have the same text in a
    column that a route extracts."""
    if len(values) == 1:
        return b" AND ".join([name + b" = " + value for name, value in zip(names, values[0], strict=True)])
    columns = list(zip(*values, strict=True))
    counts = [len(set(column)) for column in columns]
    at = counts.index(max(counts))
    lists: dict[Literals, list[bytes]] = {}
    for same, value in zip(zip(*columns[:at], *columns[at + 1 :], strict=True), columns[at], strict=True):
        lists.setdefault(same, []).append(value)
    heads = [name + b" = " for name in (*names[:at], *names[at + 1 :])]
    last = names[at]
    parts: list[bytes] = []
    for same, listed in lists.items():
        conditions = [head + value for head, value in zip(heads, same, strict=True)]
        conditions.append(last + (b" IN (" + b",".join(listed) + b")" if len(listed) > 1 else b" = " + listed[0]))
        parts.append(b" AND ".join(conditions))
    return parts[0] if len(parts) == 1 else b"((" + b") OR (".join(parts) + b"))"
