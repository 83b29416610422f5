"""The SQL of one batch: plain DML that every MySQL-protocol server has. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.batch import Keys, RowOperation
from shardmerge.worker.core.lane_hash import hash_indexes
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.apply.key_condition import MOST_TUPLES, key_condition


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Must affect exactly ``len(keys)`` rows, except for tables that may lack rows at the target."""

    sql: bytes
    plan: TablePlan
    keys: tuple[JoinedLiterals, ...]
    may_lack_rows: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceRows:
    """Overwrites rows of keys that exist, at a target with no other unique key: should affect two rows per key.

    A server counts a row that REPLACE inserts once, a row that it overwrites with another image twice, and a row
    that was equal already once. So only a count of two for every key proves that every key existed. ``any_count``:
    upserts, which accept any count: the target may lack these rows.
    """

    sql: bytes
    plan: TablePlan
    count: int
    any_count: bool = False


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Must affect exactly ``count`` rows. ``keys`` is () for a table without a key."""

    sql: bytes
    plan: TablePlan
    keys: tuple[JoinedLiterals, ...]
    count: int


@dataclass(frozen=True, slots=True)
class DeleteRow:
    """For a table without a key: must affect exactly one row, unless the table may lack rows."""

    sql: bytes
    operation: RowOperation


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """For a table without a key that may lack rows: may affect no row."""

    sql: bytes
    operation: RowOperation


Statement = DeleteKeys | ReplaceRows | InsertRows | DeleteRow | UpdateRow


def keyed_statements(keys: Keys, max_bytes: int, *, overwrite: bool) -> Iterator[Statement]:
    """One target table's part of a batch: every delete before every other statement.

    Deleting first lets a unique value move from one row to another inside the batch. ``overwrite``: rows that exist
    before and after are overwritten in place where the target has no other unique key, because that costs the target
    a third less than deleting and inserting them. Keys are in ascending order (for integers that is the order of
    their rows' pages), which costs the target a quarter less where they lie close together. For a table that may lack
    rows, an UPDATE that only counts where its row exists has been resolved before (worker/target/apply/upserts.py),
    or its row is assumed to exist, which the count then proves (:func:`proved_by_count`).
    """
    gone: list[JoinedLiterals] = []
    maybe: list[JoinedLiterals] = []
    forms: dict[tuple[str, ...], _WriteGroup] = {}
    of_shard: dict[int, tuple[_WriteGroup, bool, bool]] = {}
    plan: TablePlan | None = None
    # Two sorts by plain values take a fifth of the time of one sort by a key function.
    ordered = sorted(keys)
    ordered.sort(key=len)
    for key in ordered:
        state = keys[key]
        plan = state.plan
        known = of_shard.get(plan.shard)
        if known is None:
            # Shard tables may have their columns in different orders: one statement per order.
            columns = tuple([item.target_name for item in plan.columns])
            form = forms.setdefault(columns, _WriteGroup(plan))
            known = of_shard[plan.shard] = (
                form,
                overwrite and not plan.one_lane,
                overwrite and proved_by_count(plan),
            )
        form, in_place, proved = known
        image = state.image
        if state.existence_unknown:
            if image is not None and proved:
                (form.replaced if state.existed else form.upserted).append(image)
                continue
            if image is not None and state.existed:
                raise ValueError("a change of a table that may lack rows was not resolved")
            maybe.append(key)
        elif state.existed:
            if in_place and image is not None:
                form.replaced.append(image)
                continue
            gone.append(key)
        if image is not None:
            form.keys.append(key)
            form.inserted.append(image)
    if plan is None:
        return
    for loose, some in ((False, gone), (True, maybe)):
        for part in split_keys(some, keys, max_bytes):
            yield DeleteKeys(delete_sql(plan, part), plan, tuple(part), loose)
    for form in forms.values():
        for start, end in _split_by_size(form.replaced, max_bytes, _MAX_ITEMS):
            yield ReplaceRows(write_sql(b"REPLACE", form.plan, form.replaced[start:end]), form.plan, end - start)
        for start, end in _split_by_size(form.upserted, max_bytes, _MAX_ITEMS):
            yield ReplaceRows(write_sql(b"REPLACE", form.plan, form.upserted[start:end]), form.plan, end - start, True)
    for form in forms.values():
        for start, end in _split_by_size(form.inserted, max_bytes, _MAX_ITEMS):
            sql = write_sql(b"INSERT", form.plan, form.inserted[start:end])
            yield InsertRows(sql, form.plan, tuple(form.keys[start:end]), end - start)


def proved_by_count(plan: TablePlan) -> bool:
    """Whether a REPLACE can only overwrite the row of its own key: the target has no further unique key, and keys that
    are equal at the target are equal byte for byte. Then the count proves that the row existed."""
    return not plan.one_lane and len(hash_indexes(plan)) == len(plan.key)


def split_keys(some: Sequence[JoinedLiterals], keys: Keys, max_bytes: int) -> Iterator[Sequence[JoinedLiterals]]:
    """``some`` of ``keys``, split into parts: one condition each."""
    if some:
        most = _MAX_ITEMS if len(keys[some[0]].plan.key) == 1 else MOST_TUPLES
        for start, end in _split_by_size(some, max_bytes, most):
            yield some[start:end]


class _WriteGroup:
    """Row images of shard tables with the column order of ``plan``. ``keys``: the keys of ``inserted``."""

    def __init__(self, plan: TablePlan) -> None:
        self.plan = plan
        self.replaced: list[JoinedLiterals] = []
        self.upserted: list[JoinedLiterals] = []
        self.keys: list[JoinedLiterals] = []
        self.inserted: list[JoinedLiterals] = []


def unkeyed_statements(operations: Sequence[RowOperation]) -> Iterator[Statement]:
    """Tables without a key: one statement per side of a change, in order. An update of a table that may lack rows is
    one UPDATE, which does nothing where its row is missing."""
    for operation in operations:
        if operation.plan.may_lack_rows and operation.before and operation.after:
            yield UpdateRow(update_row_sql(operation), operation)
            continue
        if operation.before:
            yield DeleteRow(delete_row_sql(operation), operation)
        if operation.after:
            yield InsertRows(write_sql(b"INSERT", operation.plan, [b",".join(operation.after)]), operation.plan, (), 1)


def delete_sql(plan: TablePlan, keys: Sequence[JoinedLiterals]) -> bytes:
    return b"DELETE FROM " + plan.target_name.encode() + b" WHERE " + key_condition(plan, keys)


def count_sql(plan: TablePlan, keys: Sequence[JoinedLiterals]) -> bytes:
    """How many of ``keys`` exist."""
    return b"SELECT COUNT(*) FROM " + plan.target_name.encode() + b" WHERE " + key_condition(plan, keys)


def counts_sql(plan: TablePlan, keys: Sequence[JoinedLiterals]) -> bytes:
    """How many rows each of ``keys`` has, as columns of one row."""
    return b"SELECT " + b",".join(b"(" + count_sql(plan, (key,)) + b")" for key in keys)


def write_sql(verb: bytes, plan: TablePlan, images: Sequence[JoinedLiterals]) -> bytes:
    """``verb``: INSERT or REPLACE."""
    columns = b",".join(quote_name(item.target_name).encode() for item in plan.columns)
    head = verb + b" INTO " + plan.target_name.encode() + b" (" + columns + b") VALUES ("
    return head + b"),(".join(images) + b")"


def delete_row_sql(operation: RowOperation) -> bytes:
    """Delete one row that is equal to the row before the change."""
    return b"DELETE FROM " + operation.plan.target_name.encode() + _one_row(operation)


def update_row_sql(operation: RowOperation) -> bytes:
    """Update one row that is equal to the row before the change."""
    values = zip(operation.plan.columns, operation.after, strict=True)
    changes = b",".join(quote_name(item.target_name).encode() + b" = " + value for item, value in values)
    return b"UPDATE " + operation.plan.target_name.encode() + b" SET " + changes + _one_row(operation)


def _one_row(operation: RowOperation) -> bytes:
    """Matches one row that is equal in every written column, compared as bytes: under a collation, different values may
    be equal."""
    conditions: list[bytes] = []
    for item, value in zip(operation.plan.columns, operation.before, strict=True):
        name = quote_name(item.target_name).encode()
        if value == b"NULL":
            conditions.append(name + b" IS NULL")
        elif item.column.kind is ValueKind.STRING and operation.plan.text_as_utf8:
            conditions.append(b"CAST(" + name + b" AS BINARY) = CAST(" + value + b" AS BINARY)")
        elif item.column.kind is ValueKind.STRING:
            charset = item.column.charset.encode()
            conditions.append(b"BINARY " + name + b" = BINARY CONVERT(" + value + b" USING " + charset + b")")
        elif item.column.kind is ValueKind.JSON:
            # As text: MySQL treats a text that is compared with a JSON value as a JSON string.
            text = b"BINARY CONVERT(%b USING utf8mb4)"
            conditions.append(text % name + b" = " + text % value)
        elif item.column.kind is ValueKind.VECTOR:
            conditions.append(b"BINARY " + name + b" = " + value)  # MySQL does not compare vectors
        else:
            conditions.append(name + b" = " + value)
    return b" WHERE " + b" AND ".join(conditions) + b" LIMIT 1"


_MAX_ITEMS = 2000


def _split_by_size(items: Sequence[bytes], max_bytes: int, most: int) -> Iterator[tuple[int, int]]:
    """Where consecutive parts begin and end, each of at most ``max_bytes`` (but one item at least) and ``most`` items.

    The separator between items counts with its longest form, `),(` and a space.
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
