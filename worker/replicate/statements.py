"""The SQL of one batch. Pure: bytes out of literals; plain DML that every MySQL-protocol server has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from worker.connection import quote_name
from worker.plan import TablePlan
from worker.replicate.batch import KeyState, RowOperation
from worker.rows import Literals
from worker.table import ValueKind


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Must affect exactly ``len(keys)`` rows."""

    sql: bytes
    plan: TablePlan
    keys: tuple[Literals, ...]


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Must affect exactly ``len(keys)`` rows; ``keys`` is () for a table without a key."""

    sql: bytes
    plan: TablePlan
    keys: tuple[Literals, ...]
    count: int


@dataclass(frozen=True, slots=True)
class DeleteRow:
    """Of a table without a key: must affect exactly one row."""

    sql: bytes
    operation: RowOperation


Statement = DeleteKeys | InsertRows | DeleteRow


def keyed_statements(keys: dict[Literals, KeyState], max_bytes: int) -> Iterator[Statement]:
    """One target table's part of a batch: every delete before every insert.

    Deleting first lets a unique value move from one row to another inside the batch.
    """
    existed: list[Literals] = []
    images: dict[tuple[str, ...], list[tuple[Literals, KeyState]]] = {}
    plan: TablePlan | None = None
    names: dict[int, tuple[str, ...]] = {}
    for key, state in keys.items():
        plan = state.plan
        if state.existed:
            existed.append(key)
        if state.image is not None:
            # Shard tables may hold their columns in different orders: one INSERT per order.
            columns = names.get(plan.shard)
            if columns is None:
                columns = names[plan.shard] = tuple(item.target_name for item in plan.columns)
            images.setdefault(columns, []).append((key, state))
    if plan is None:
        return
    for part in _cut(existed, max_bytes):
        yield DeleteKeys(delete_sql(plan, part), plan, tuple(part))
    for rows in images.values():
        start = 0
        sizes = [sum(map(len, state.image or ())) + 3 for _, state in rows]
        for end in _cut_sizes(sizes, max_bytes):
            part_rows = rows[start:end]
            start = end
            of = part_rows[0][1].plan
            sql = insert_sql(of, [state.image for _, state in part_rows if state.image is not None])
            yield InsertRows(sql, of, tuple(key for key, _ in part_rows), len(part_rows))


def unkeyed_statements(operations: Sequence[RowOperation]) -> Iterator[Statement]:
    """Tables without a key: one statement per side of a change, in order."""
    for operation in operations:
        if operation.before:
            yield DeleteRow(delete_row_sql(operation), operation)
        if operation.after:
            yield InsertRows(insert_sql(operation.plan, [operation.after]), operation.plan, (), 1)


def key_condition(plan: TablePlan, keys: Sequence[Literals]) -> bytes:
    """``key IN (...)`` over all key columns."""
    columns = [quote_name(plan.columns[index].target_name).encode() for index in plan.key]
    if len(columns) == 1:
        return columns[0] + b" IN (" + b",".join(key[0] for key in keys) + b")"
    return b"(" + b",".join(columns) + b") IN (" + b",".join(b"(" + b",".join(key) + b")" for key in keys) + b")"


def delete_sql(plan: TablePlan, keys: Sequence[Literals]) -> bytes:
    return b"DELETE FROM " + plan.target_name.encode() + b" WHERE " + key_condition(plan, keys)


def count_sql(plan: TablePlan, keys: Sequence[Literals]) -> bytes:
    """How many of ``keys`` exist."""
    return b"SELECT COUNT(*) FROM " + plan.target_name.encode() + b" WHERE " + key_condition(plan, keys)


def insert_sql(plan: TablePlan, images: Sequence[Literals]) -> bytes:
    columns = b",".join(quote_name(item.target_name).encode() for item in plan.columns)
    values = b"),(".join(b",".join(image) for image in images)
    return b"INSERT INTO " + plan.target_name.encode() + b" (" + columns + b") VALUES (" + values + b")"


def delete_row_sql(operation: RowOperation) -> bytes:
    """One row equal in every written column, compared as bytes: a collation would take a row that only looks alike."""
    conditions: list[bytes] = []
    for item, value in zip(operation.plan.columns, operation.before, strict=True):
        name = quote_name(item.target_name).encode()
        if value == b"NULL":
            conditions.append(name + b" IS NULL")
        elif item.column.kind is ValueKind.STRING:
            charset = item.column.charset.encode()
            conditions.append(b"BINARY " + name + b" = BINARY CONVERT(" + value + b" USING " + charset + b")")
        else:
            conditions.append(name + b" = " + value)
    where = b" AND ".join(conditions)
    return b"DELETE FROM " + operation.plan.target_name.encode() + b" WHERE " + where + b" LIMIT 1"


def _cut(keys: list[Literals], max_bytes: int) -> Iterator[list[Literals]]:
    start = 0
    for end in _cut_sizes([sum(map(len, key)) + 4 for key in keys], max_bytes):
        yield keys[start:end]
        start = end


_MAX_ITEMS = 2000


def _cut_sizes(sizes: list[int], max_bytes: int) -> Iterator[int]:
    """Ends of consecutive parts, each at most ``max_bytes`` (but at least one item) and _MAX_ITEMS."""
    total = count = 0
    for index, size in enumerate(sizes):
        if count and (total + size > max_bytes or count >= _MAX_ITEMS):
            yield index
            total = count = 0
        total += size
        count += 1
    if count:
        yield len(sizes)
