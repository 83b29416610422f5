"""The SQL of one batch. Pure: bytes out of literals; plain DML that every MySQL-protocol server has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from worker.connection import quote_name
from worker.plan import TablePlan
from worker.replicate.batch import Keys, RowOperation
from worker.replicate.placement import hash_indexes
from worker.rows import Joined
from worker.table import ValueKind


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Must affect exactly ``len(keys)`` rows, unless it is of ``loose`` tables."""

    sql: bytes
    plan: TablePlan
    keys: tuple[Joined, ...]
    loose: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceRows:
    """Of keys that exist, at a target with no other unique key: should affect two rows each.

    A server counts a row that REPLACE inserts once, one that it overwrites with another image twice, and one that
    was the same already once: only twice everywhere proves that every key existed. ``any_count``: of loose tables'
    rows that are put there whether or not one was.
    """

    sql: bytes
    plan: TablePlan
    count: int
    any_count: bool = False


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Must affect exactly ``len(keys)`` rows; ``keys`` is () for a table without a key."""

    sql: bytes
    plan: TablePlan
    keys: tuple[Joined, ...]
    count: int


@dataclass(frozen=True, slots=True)
class DeleteRow:
    """Of a table without a key: must affect exactly one row, unless the table is loose."""

    sql: bytes
    operation: RowOperation


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """Of a loose table without a key: may affect no row."""

    sql: bytes
    operation: RowOperation


Statement = DeleteKeys | ReplaceRows | InsertRows | DeleteRow | UpdateRow


def keyed_statements(keys: Keys, max_bytes: int, *, overwrite: bool) -> Iterator[Statement]:
    """One target table's part of a batch: every delete before every other statement.

    Deleting first lets a unique value move from one row to another inside the batch. ``overwrite``: rows that exist
    and stay are overwritten in place where the target has no other unique key, for that costs the target a third
    less than deleting and inserting them. Keys go in ascending order (of integers that is the order of their rows'
    pages), which costs the target a quarter less where they lie close together. A change of a loose table that only
    counts where its row is there has been settled before (worker/replicate/loose.py), or is taken for one whose row is
    there, which the count then proves (:func:`proved_by_count`).
    """
    gone: list[Joined] = []
    maybe: list[Joined] = []
    forms: dict[tuple[str, ...], _Form] = {}
    of_shard: dict[int, tuple[_Form, bool, bool]] = {}
    plan: TablePlan | None = None
    # Two sorts by what C compares take a fifth of one by a function of both.
    ordered = sorted(keys)
    ordered.sort(key=len)
    for key in ordered:
        state = keys[key]
        plan = state.plan
        known = of_shard.get(plan.shard)
        if known is None:
            # Shard tables may hold their columns in different orders: one statement per order.
            columns = tuple([item.target_name for item in plan.columns])
            form = forms.setdefault(columns, _Form(plan))
            known = of_shard[plan.shard] = (
                form,
                overwrite and not plan.one_lane,
                overwrite and proved_by_count(plan),
            )
        form, in_place, proved = known
        image = state.image
        if state.loose:
            if image is not None and proved:
                (form.staying if state.existed else form.put).append(image)
                continue
            if image is not None and state.existed:
                raise ValueError("a change of a loose table was not settled")
            maybe.append(key)
        elif state.existed:
            if in_place and image is not None:
                form.staying.append(image)
                continue
            gone.append(key)
        if image is not None:
            form.keys.append(key)
            form.coming.append(image)
    if plan is None:
        return
    for loose, some in ((False, gone), (True, maybe)):
        for part in parts_of(some, keys, max_bytes):
            yield DeleteKeys(delete_sql(plan, part), plan, tuple(part), loose)
    for form in forms.values():
        for start, end in _cuts(form.staying, max_bytes, _MAX_ITEMS):
            yield ReplaceRows(write_sql(b"REPLACE", form.plan, form.staying[start:end]), form.plan, end - start)
        for start, end in _cuts(form.put, max_bytes, _MAX_ITEMS):
            yield ReplaceRows(write_sql(b"REPLACE", form.plan, form.put[start:end]), form.plan, end - start, True)
    for form in forms.values():
        for start, end in _cuts(form.coming, max_bytes, _MAX_ITEMS):
            sql = write_sql(b"INSERT", form.plan, form.coming[start:end])
            yield InsertRows(sql, form.plan, tuple(form.keys[start:end]), end - start)


def proved_by_count(plan: TablePlan) -> bool:
    """Whether REPLACE meets a loose table's row, and no other: the target has no further unique key, and keys that are
    equal there are so byte for byte."""
    return not plan.one_lane and len(hash_indexes(plan)) == len(plan.key)


def parts_of(some: Sequence[Joined], keys: Keys, max_bytes: int) -> Iterator[Sequence[Joined]]:
    """``some`` of ``keys`` in parts for one condition each."""
    if some:
        most = _MAX_ITEMS if len(keys[some[0]].plan.key) == 1 else _MAX_TUPLES
        for start, end in _cuts(some, max_bytes, most):
            yield some[start:end]


class _Form:
    """Images of shard tables whose columns stand in the order of ``plan``'s; ``keys``: of those that are ``coming``."""

    def __init__(self, plan: TablePlan) -> None:
        self.plan = plan
        self.staying: list[Joined] = []
        self.put: list[Joined] = []
        self.keys: list[Joined] = []
        self.coming: list[Joined] = []


def unkeyed_statements(operations: Sequence[RowOperation]) -> Iterator[Statement]:
    """Tables without a key: one statement per side of a change, in order; an update of a loose table is one, for it
    does nothing where its row is not there."""
    for operation in operations:
        if operation.plan.loose and operation.before and operation.after:
            yield UpdateRow(update_row_sql(operation), operation)
            continue
        if operation.before:
            yield DeleteRow(delete_row_sql(operation), operation)
        if operation.after:
            yield InsertRows(write_sql(b"INSERT", operation.plan, [b",".join(operation.after)]), operation.plan, (), 1)


def key_condition(plan: TablePlan, keys: Sequence[Joined]) -> bytes:
    """``key IN (...)`` over all key columns."""
    columns = [quote_name(plan.columns[index].target_name).encode() for index in plan.key]
    if len(columns) == 1:
        return columns[0] + b" IN (" + b",".join(keys) + b")"
    return b"(" + b",".join(columns) + b") IN ((" + b"),(".join(keys) + b"))"


def delete_sql(plan: TablePlan, keys: Sequence[Joined]) -> bytes:
    return b"DELETE FROM " + plan.target_name.encode() + b" WHERE " + key_condition(plan, keys)


def count_sql(plan: TablePlan, keys: Sequence[Joined]) -> bytes:
    """How many of ``keys`` exist."""
    return b"SELECT COUNT(*) FROM " + plan.target_name.encode() + b" WHERE " + key_condition(plan, keys)


def counts_sql(plan: TablePlan, keys: Sequence[Joined]) -> bytes:
    """How many rows each of ``keys`` has, as columns of one row."""
    return b"SELECT " + b",".join(b"(" + count_sql(plan, (key,)) + b")" for key in keys)


def write_sql(verb: bytes, plan: TablePlan, images: Sequence[Joined]) -> bytes:
    """``verb``: INSERT or REPLACE."""
    columns = b",".join(quote_name(item.target_name).encode() for item in plan.columns)
    head = verb + b" INTO " + plan.target_name.encode() + b" (" + columns + b") VALUES ("
    return head + b"),(".join(images) + b")"


def delete_row_sql(operation: RowOperation) -> bytes:
    """Of one row that is equal to the one before the change."""
    return b"DELETE FROM " + operation.plan.target_name.encode() + _one_row(operation)


def update_row_sql(operation: RowOperation) -> bytes:
    """Of one row that is equal to the one before the change."""
    values = zip(operation.plan.columns, operation.after, strict=True)
    changes = b",".join(quote_name(item.target_name).encode() + b" = " + value for item, value in values)
    return b"UPDATE " + operation.plan.target_name.encode() + b" SET " + changes + _one_row(operation)


def _one_row(operation: RowOperation) -> bytes:
    """One row equal in every written column, compared as bytes: a collation would take a row that only looks alike."""
    conditions: list[bytes] = []
    for item, value in zip(operation.plan.columns, operation.before, strict=True):
        name = quote_name(item.target_name).encode()
        if value == b"NULL":
            conditions.append(name + b" IS NULL")
        elif item.column.kind is ValueKind.STRING:
            charset = item.column.charset.encode()
            conditions.append(b"BINARY " + name + b" = BINARY CONVERT(" + value + b" USING " + charset + b")")
        elif item.column.kind is ValueKind.JSON:
            # By its text: MySQL takes a text that is compared with a JSON value for a JSON string.
            text = b"BINARY CONVERT(%b USING utf8mb4)"
            conditions.append(text % name + b" = " + text % value)
        elif item.column.kind is ValueKind.VECTOR:
            conditions.append(b"BINARY " + name + b" = " + value)  # MySQL does not compare vectors
        else:
            conditions.append(name + b" = " + value)
    return b" WHERE " + b" AND ".join(conditions) + b" LIMIT 1"


_MAX_ITEMS = 2000
# The range analysis of (a, b) IN (...) is quadratic where a second index holds the same columns: 2,000 tuples took
# MariaDB 10.11 4.8 s, ten times 200 take 0.1 s.
_MAX_TUPLES = 200


def _cuts(items: Sequence[bytes], max_bytes: int, most: int) -> Iterator[tuple[int, int]]:
    """Where consecutive parts begin and end, each of at most ``max_bytes`` (but one item at least) and ``most`` items.

    What stands between items counts with the longest form, `),(` and a space.
    """
    start = total = 0
    for index, item in enumerate(items):
        size = len(item) + 4
        if index > start and (total + size > max_bytes or index - start >= most):
            yield start, index
            start, total = index, 0
        total += size
    if start < len(items):
        yield start, len(items)
