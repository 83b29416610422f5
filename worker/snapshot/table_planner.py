"""Plans a table's chunks: asks the source server where to cut it. Lazy: bounds are yielded as they are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pymysql.cursors import DictCursor

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Session, quote_name, text_of
from shardmerge.worker.core.mysql.connection import rows as ask
from shardmerge.worker.core.mysql.information_schema import select_list
from shardmerge.worker.core.table import Table, ValueKind
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.chunks import WHOLE, Bound, Chunk, cut, even_bounds, even_step, rows_per_chunk
from shardmerge.worker.snapshot.key_order import (
    above,
    below,
    bound_columns,
    bound_literal,
    column_names,
    columns_in_range,
)

MAX_CHUNK_BYTES = 32 << 20
"""Largest size of a chunk at the source, by the server's estimate of a row's width."""

MAX_WHOLE_BYTES = 1 << 30
"""A table whose target has a further unique key is read at one position up to this size (see :func:`is_whole`)."""

# Engines with consistent reads. A table of any other engine is read under a short lock of that one table.
_VERSIONED_ENGINES = frozenset({"innodb", "rocksdb", "tokudb", "xpand"})

_INEXACT = frozenset({ValueKind.STRING, ValueKind.FLOAT, ValueKind.DOUBLE})

# A chunk cut by arithmetic may hold as many rows as it is wide. If its estimate exceeds the wanted number of rows by
# this factor, it is cut again.
_CROWDED = 2


def is_versioned(table: Table) -> bool:
    """Whether a SELECT of this table sees one state of it while others write."""
    return table.engine.lower() in _VERSIONED_ENGINES


def is_whole(plan: TablePlan) -> bool:
    """Whether the table is one chunk, read at one exact position.

    This holds for a table without a key (a fix-up could not identify its rows), for a table of an engine without
    consistent reads and, unless it is large, for a table whose target has a further unique key: between two chunks
    read at different times, a value of that key may move from a row of the later chunk to a row of
    the earlier one, and would then look like a collision. It also holds for a table whose rows the source changes by
    cascade: a fix-up does not know these changes.
    """
    table = plan.table
    if plan.is_cascaded or not bound_columns(table) or not is_versioned(table):
        return True
    return _has_further_key(plan) and table.byte_estimate <= MAX_WHOLE_BYTES


def needs_lock(plan: TablePlan, *, reports_position: bool) -> bool:
    """Whether the table is read under a short LOCK TABLES of it alone.

    ``reports_position``: the source's server reports the position of a consistent snapshot (see watermarks.py).
    """
    return is_whole(plan) and not (is_versioned(plan.table) and reports_position)


def _has_further_key(plan: TablePlan) -> bool:
    """``one_lane`` is also set for keys whose equal values may differ in bytes: such values are in one chunk anyway."""
    if not plan.one_lane:
        return False
    return len(plan.table.unique_keys) > 1 or not any(column.kind in _INEXACT for column in plan.table.key_columns)


class TablePlanner:
    """Cuts one table into chunks. ``session``: a raw session to the source; nothing else uses it meanwhile."""

    def __init__(self, session: Session, plan: TablePlan, chunk_rows: int) -> None:
        self._session = session
        self._plan = plan
        self._table = plan.table
        self._columns = bound_columns(plan.table)
        self._names = column_names(self._columns)
        self._chunk_rows = rows_per_chunk(
            chunk_rows, plan.table.row_estimate, plan.table.byte_estimate, MAX_CHUNK_BYTES
        )

    def chunks(self, last: Chunk | None = None) -> Iterator[Chunk]:
        """The table's chunks, those after ``last`` when a part of the plan exists already.

        Raises ``pymysql.MySQLError`` and errors.snapshot.PLAN_STUCK and KEYS_NOT_FOUND.
        """
        if last is None and is_whole(self._plan):
            return iter((WHOLE,))
        if last is None:
            self._check_uuids()
        return cut(self._bounds(() if last is None else last.upper), last)

    def within(self, chunk: Chunk) -> list[Bound]:
        """Bounds ``chunk_rows`` rows apart within ``chunk``; [] for a table that must be one chunk. Raises
        ``pymysql.MySQLError`` and PLAN_STUCK."""
        return [] if is_whole(self._plan) else list(self._ordered(chunk.lower, chunk.upper))

    def _check_uuids(self) -> None:
        """Check that MariaDB finds each row of a UUID key by its value; one scan of the index.

        MariaDB stores the bytes of a UUID in another order than it shows them, except for version 6 and later. Some
        bytes that are no valid UUID it takes for one version when it stores them and for the other when it reads them
        (mem_need_swap() in sql_type_uuid.h; seen on 10.11): a range of keys then lacks the row.
        """
        uuids = [column for column in self._columns if column.type_text == "uuid"]
        if not uuids:
            return
        read = {column.name: f"CAST(a.{quote_name(column.name)} AS BINARY(16))" for column in uuids}
        # The seventh shown byte of the values that are mistaken for another version.
        doubtful = " OR ".join(f"SUBSTRING({value}, 7, 1) BETWEEN X'60' AND X'80'" for value in read.values())
        same = " AND ".join(
            f"b.{quote_name(column.name)} = {read.get(column.name, f'a.{quote_name(column.name)}')}"
            for column in self._columns
        )
        table = self._table.quoted
        [(count,)] = ask(
            self._session,
            f"SELECT COUNT(*) FROM {table} AS a WHERE ({doubtful}) AND NOT EXISTS "
            f"(SELECT 1 FROM {table} AS b WHERE {same})",
        )
        if int(count):
            raise errors.snapshot.KEYS_NOT_FOUND(
                source=self._plan.source, schema=self._table.schema, table=self._table.name, count=int(count)
            )

    def _bounds(self, lower: Bound) -> Iterator[Bound]:
        even = self._even(lower)
        if even is None:
            yield from self._ordered(lower, ())
            return
        minimum, maximum, step = even
        crowded = step > _CROWDED * self._chunk_rows
        for value in even_bounds(minimum, maximum, step):
            bound = (b"%d" % value,)
            if crowded and self._estimate(lower, bound) > _CROWDED * self._chunk_rows:
                yield from self._ordered(lower, bound)
            yield bound
            lower = bound

    def _even(self, lower: Bound) -> tuple[int, int, int] | None:
        """(minimum, maximum, step) when the only key column is an evenly spread integer."""
        if len(self._table.key) != 1 or self._columns[0].kind is not ValueKind.INTEGER:
            return None
        name = self._names[0].decode()
        [(minimum, maximum)] = ask(self._session, f"SELECT MIN({name}), MAX({name}) FROM {self._table.quoted}")
        if minimum is None or maximum is None:
            return None
        first, final = int(minimum), int(maximum)
        step = even_step(first, final, self._table.row_estimate, self._chunk_rows)
        if step is None:
            return None
        return (int(lower[0]) if lower else first, final, step)

    def _ordered(self, lower: Bound, end: Bound) -> Iterator[Bound]:
        """Bounds ``chunk_rows`` rows apart in the server's own order, between ``lower`` and ``end`` (both exclusive).

        Each is strictly above the previous one, even where the bound columns are not the whole key.
        """
        columns = self._columns
        order = b", ".join(self._names)
        head = b"SELECT %s FROM %s FORCE INDEX (%s)" % (
            select_list(columns).encode(),
            self._table.quoted.encode(),
            quote_name(self._table.key_name).encode(),
        )
        while True:
            parts = [above(self._names, lower, columns)] if lower else []
            if end:
                parts.append(below(self._names, end, columns))
            where = b" WHERE " + b" AND ".join(b"(" + part + b")" for part in parts) if parts else b""
            # The chunk includes the row at `lower`.
            offset = self._chunk_rows - 1 if lower else self._chunk_rows
            found = _query(self._session, head + where + b" ORDER BY %s LIMIT 1 OFFSET %d" % (order, offset))
            if not found:
                return
            bound = tuple(bound_literal(column, value) for column, value in zip(columns, found[0], strict=True))
            if bound == lower:
                raise errors.snapshot.PLAN_STUCK(
                    source=self._plan.source,
                    schema=self._table.schema,
                    table=self._table.name,
                    found=_bound_text(bound),
                    last=_bound_text(lower),
                )
            yield bound
            lower = bound

    def _estimate(self, lower: Bound, upper: Bound) -> int:
        """The optimizer's estimate of the rows in a range: two dives into the index, however large the range."""
        # MySQL 9 explains as a tree by default, and with FORCE INDEX it makes no index dive.
        statement = b"EXPLAIN FORMAT=TRADITIONAL SELECT 1 FROM %s USE INDEX (%s)%s" % (
            self._table.quoted.encode(),
            quote_name(self._table.key_name).encode(),
            columns_in_range(self._columns, lower, upper),
        )
        with self._session.cursor(DictCursor) as cursor:
            cursor.execute(statement.decode("utf-8", "surrogateescape"))
            [found] = cursor.fetchall()
        return int(text_of(found["rows"]) or 0)


def _query(session: Session, statement: bytes) -> Sequence[tuple[bytes, ...]]:
    return ask(session, statement.decode("utf-8", "surrogateescape"))


def _bound_text(bound: Bound) -> str:
    return ", ".join(value.decode("utf-8", "replace") for value in bound)
