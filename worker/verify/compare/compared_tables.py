"""Decides how one shard table is compared with its rows at the target, and builds the SQL that reads both. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import PartitionId, TablePlan
from shardmerge.worker.snapshot.chunks import Bound, Chunk
from shardmerge.worker.snapshot.key_order import bound_columns, columns_in_range, in_range
from shardmerge.worker.snapshot.table_planner import is_versioned
from shardmerge.worker.target.apply.key_condition import MOST_TUPLES, key_condition, source_key_condition
from shardmerge.worker.target.tables.row_ownership import (
    AllRows,
    ExtractedTexts,
    KeyRange,
    NotSeparable,
    Owned,
    owned_rows,
    source_conditions,
    stray_condition,
)
from shardmerge.worker.verify.compare.canonical_values import (
    ComparedColumn,
    NotComparable,
    compared_column,
    hash_sum,
    multiset_sums,
    row_hash,
)
from shardmerge.worker.verify.compare.keys import KeyReader, RowKey

_KEYS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A shard table that is compared; pickled into the Spark tasks.

    ``owned``: which rows of the target can be this shard table's. ``by_range``: a chunk's keys are also a range at the
    target, without rows of other shards. ``stray``: the condition of the target's rows that belong to no shard table,
    "" if another comparison looks for them.
    """

    plan: TablePlan
    target: Table
    columns: tuple[ComparedColumn, ...]
    owned: Owned
    by_range: bool
    stray: str

    def keys(self) -> KeyReader:
        return KeyReader(self.plan, self.target)


@dataclass(frozen=True, slots=True)
class UnkeyedTables:
    """Shard tables of one source and one target without a key, which are compared as a multiset of rows; pickled into
    the Spark tasks. ``columns``: of each plan. ``shard_tables``: how many shard tables the target has in all.
    ``condition``: of the target's rows that are read, "" for all. ``division``: equal for sources that divide the rows
    alike, "" if each of them reads all. ``is_own``: only the events of this source change the rows that are read, and
    the target can be read at exactly what a lane has committed."""

    plans: tuple[TablePlan, ...]
    columns: tuple[tuple[ComparedColumn, ...], ...]
    shard_tables: int
    condition: str
    division: str
    is_own: bool

    @property
    def target_name(self) -> str:
        return self.plans[0].target_name

    @property
    def form(self) -> str:
        """Equal for tables whose checksums are computed alike."""
        return hashlib.sha256(self.target_sums(self.target_name)).hexdigest()

    def source_sums(self) -> Iterator[bytes]:
        """A statement for each shard table."""
        for plan, columns in zip(self.plans, self.columns, strict=True):
            yield f"SELECT {multiset_sums(columns, at_source=True)} FROM {plan.table.quoted}".encode()

    def target_sums(self, name: str = "") -> bytes:
        """``name``: of all rows of this table, instead of the target's rows."""
        where = f" WHERE {self.condition}" if self.condition and not name else ""
        sums = multiset_sums(self.columns[0], at_source=False)
        return f"SELECT {sums} FROM {name or self.target_name}{where}".encode()


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A shard table that cannot be compared, and the reason."""

    plan: TablePlan
    why: str


def compared_table(
    plan: TablePlan,
    target: Table | None,
    all_plans: Sequence[TablePlan] | str,
    *,
    strays: bool,
    signed_zero: bool = True,
) -> ComparedTable | NotCompared:
    """``all_plans``: the plans of all shard tables of the task, or why they are not known. ``strays``: whether this
    comparison is the one that looks for stray rows of the target. ``signed_zero``: see :func:`compared_column`."""
    if not plan.key:
        return NotCompared(plan, "it has no key")
    columns = _columns(plan, target, signed_zero=signed_zero)
    if isinstance(columns, NotCompared) or target is None:
        return columns if isinstance(columns, NotCompared) else NotCompared(plan, "the target table does not exist")
    try:
        KeyReader(plan, target)
    except NotComparable as reason:
        return NotCompared(plan, str(reason))
    by_name = {column.name.lower(): column for column in target.columns}
    owned = NotSeparable(all_plans) if isinstance(all_plans, str) else owned_rows(plan, all_plans)
    stray = "" if isinstance(all_plans, str) or not strays else stray_condition(plan, all_plans) or ""
    return ComparedTable(plan, target, columns, owned, _by_range(plan, by_name, owned), stray)


def unkeyed_tables(
    plans: Sequence[TablePlan],
    target: Table | None,
    all_plans: Sequence[TablePlan] | str,
    *,
    may_divide: bool,
    signed_zero: bool = True,
) -> UnkeyedTables | list[NotCompared]:
    """``plans``: the source's shard tables of one target, without a key. ``all_plans``, ``signed_zero``: as in
    compared_table. ``may_divide``: whether each source may read its own rows only."""
    if isinstance(all_plans, str):
        return [NotCompared(plan, f"it has no key, and {all_plans}") for plan in plans]
    found = [_columns(plan, target, signed_zero=signed_zero) for plan in plans]
    refused = [item for item in found if isinstance(item, NotCompared)]
    if refused:
        why = f"it has no key, and of {refused[0].plan.table.name}: {refused[0].why}"
        return [next((item for item in refused if item.plan is plan), NotCompared(plan, why)) for plan in plans]
    columns = tuple(item for item in found if not isinstance(item, NotCompared))
    if len({multiset_sums(item, at_source=False) for item in columns}) > 1:
        return [NotCompared(plan, "it has no key, and the target's shard tables have other columns") for plan in plans]
    members = [other for other in all_plans if other.target_name == plans[0].target_name]
    conditions = source_conditions(members)
    if conditions is None or (len(conditions) > 1 and not may_divide):
        return UnkeyedTables(tuple(plans), columns, len(members), "", "", is_own=False)
    is_own = target is not None and is_versioned(target)
    division = hashlib.sha256(repr(sorted(conditions.items())).encode()).hexdigest() if len(conditions) > 1 else ""
    return UnkeyedTables(tuple(plans), columns, len(members), conditions[plans[0].source], division, is_own)


def _columns(plan: TablePlan, target: Table | None, *, signed_zero: bool) -> tuple[ComparedColumn, ...] | NotCompared:
    """The compared columns; or why the table cannot be compared, with or without a key."""
    if plan.filters:
        rules = ", ".join(rule.rule for rule in plan.filters)
        return NotCompared(plan, f"expression filters drop rows by their values at that time ({rules})")
    if plan.transform is not None:
        return NotCompared(plan, f"transform {plan.transform.rule} changes its rows")
    if not is_versioned(plan.table):
        return NotCompared(plan, f"its engine, {plan.table.engine}, has no consistent reads")
    if target is None:
        return NotCompared(plan, "the target table does not exist")
    by_name = {column.name.lower(): column for column in target.columns}
    columns: list[ComparedColumn] = []
    try:
        for item in plan.columns:
            column = by_name.get(item.target_name.lower())
            if column is None:
                return NotCompared(plan, f"column {item.target_name} is missing at the target")
            columns.append(compared_column(item, column, as_utf8=plan.text_as_utf8, signed_zero=signed_zero))
    except NotComparable as reason:
        return NotCompared(plan, str(reason))
    return tuple(columns)


def _by_range(plan: TablePlan, target: Mapping[str, Column], owned: Owned) -> bool:
    if isinstance(owned, NotSeparable):
        return False
    items = [plan.columns[index] for index in plan.source_key]
    kinds = [target[item.target_name.lower()].kind for item in items]
    # Chunks are cut by the table's own key, rows are identified by the plan's key: usually they are the same.
    same = [item.index for item in items] == list(plan.table.key)
    return same and all(
        item.column.kind is ValueKind.INTEGER and kind is ValueKind.INTEGER
        for item, kind in zip(items, kinds, strict=True)
    )


@dataclass(frozen=True, slots=True)
class TableQueries:
    """The SELECT statements of one compared table. Raises NotComparable for a table that cannot be compared."""

    table: ComparedTable
    keys: KeyReader

    # --- statements for a chunk

    def source_sum(self, chunk: Chunk) -> bytes:
        return b"SELECT %b%b" % (hash_sum(self.table.columns, at_source=True).encode(), self._source_chunk(chunk))

    def target_sum(self, chunk: Chunk) -> bytes:
        return b"SELECT %b%b" % (hash_sum(self.table.columns, at_source=False).encode(), self._target_range(chunk))

    def source_hashes(self, chunk: Chunk) -> bytes:
        """Rows: the key's columns and the checksum."""
        return self._hashes(self._source_chunk(chunk), at_source=True)

    def target_hashes(self, chunk: Chunk) -> bytes:
        return self._hashes(self._target_range(chunk), at_source=False)

    def target_hashes_of(self, keys: Sequence[RowKey]) -> Iterator[bytes]:
        for part in self._parts(keys):
            yield self._hashes(self._target_keys(part), at_source=False)

    def target_keys(self, chunk: Chunk, also: bytes = b"") -> bytes:
        """Of a chunk cut by the target's own key: the keys of the shard table's rows. ``also``: a further condition."""
        return b"SELECT %b%b" % (self.keys.target_list.encode(), self._target_chunk(chunk, also))

    def target_keys_of(self, keys: Sequence[RowKey], also: bytes) -> Iterator[bytes]:
        """Those of the keys whose rows meet a condition."""
        for part in self._parts(keys):
            yield b"SELECT %b%b AND %b" % (self.keys.target_list.encode(), self._target_keys(part), also)

    def stray_keys(self) -> bytes:
        where = f" FROM {self.table.plan.target_name} WHERE {self.table.stray}"
        return b"SELECT %b%b" % (self.keys.target_list.encode(), where.encode())

    def source_keys_of(self, keys: Sequence[RowKey]) -> Iterator[bytes]:
        for part in self._parts([key for key in keys if key.source]):
            yield b"SELECT %b%b" % (self.keys.source_list.encode(), self._source_keys(part))

    # --- statements for single rows

    def source_rows(self, keys: Sequence[RowKey]) -> Iterator[bytes]:
        """Rows: the key's columns, the compared values, the shown part of the long ones."""
        for part in self._parts([key for key in keys if key.source]):
            yield self._rows(self._source_keys(part), at_source=True)

    def source_images(self, keys: Sequence[RowKey], listed: str) -> Iterator[bytes]:
        """Rows: the expressions ``listed``."""
        for part in self._parts([key for key in keys if key.source]):
            yield b"SELECT %b%b" % (listed.encode(), self._source_keys(part))

    def target_rows(self, keys: Sequence[RowKey]) -> Iterator[bytes]:
        for part in self._parts(keys):
            yield self._rows(self._target_keys(part), at_source=False)

    def _rows(self, rest: bytes, *, at_source: bool) -> bytes:
        values: list[str] = []
        shown: list[str] = []
        for column in self.table.columns:
            expression = column.source if at_source else column.target
            values.append(f"SHA2({expression},256)" if column.is_hashed else expression)
            if column.is_long or column.is_binary:
                shown.append(column.shown(expression))
        listed = self.keys.source_list if at_source else self.keys.target_list
        return b"SELECT %b%b" % (", ".join((listed, *values, *shown)).encode(), rest)

    def _hashes(self, rest: bytes, *, at_source: bool) -> bytes:
        listed = self.keys.source_list if at_source else self.keys.target_list
        checksum = row_hash(self.table.columns, at_source=at_source)
        return f"SELECT {listed}, {checksum}".encode() + rest

    # --- conditions

    def _source_chunk(self, chunk: Chunk) -> bytes:
        table = self.table.plan.table
        where = columns_in_range(bound_columns(table), chunk.lower, chunk.upper)
        index = f" FORCE INDEX ({quote_name(table.key_name)})".encode() if where else b""
        return b" FROM %b%b%b" % (table.quoted.encode(), index, where)

    def _target_range(self, chunk: Chunk) -> bytes:
        """The rows of the target that correspond to a chunk of the shard table (``by_range`` only)."""
        plan = self.table.plan
        items = [plan.columns[index] for index in plan.source_key]
        names = [quote_name(item.target_name).encode() for item in items[: len(bound_columns(plan.table))]]
        where = in_range(names, _mapped_bound(plan, chunk.lower), _mapped_bound(plan, chunk.upper))
        return f" FROM {plan.target_name}".encode() + self._with_owned(where)

    def _target_chunk(self, chunk: Chunk, also: bytes = b"") -> bytes:
        where = columns_in_range(bound_columns(self.table.target), chunk.lower, chunk.upper)
        return f" FROM {self.table.plan.target_name}".encode() + _and(self._with_owned(where), also)

    def _with_owned(self, where: bytes) -> bytes:
        match self.table.owned:
            case KeyRange() | ExtractedTexts() as owned:
                return _and(where, owned.condition.encode())
            case AllRows() | NotSeparable():
                return where

    def _source_keys(self, keys: Sequence[RowKey]) -> bytes:
        plan = self.table.plan
        condition = source_key_condition(plan, [key.source for key in keys])
        return b" FROM %b WHERE %b" % (plan.table.quoted.encode(), condition)

    def _target_keys(self, keys: Sequence[RowKey]) -> bytes:
        plan = self.table.plan
        return f" FROM {plan.target_name} WHERE ".encode() + key_condition(plan, _joined(keys))

    def _parts(self, keys: Sequence[RowKey]) -> Iterator[Sequence[RowKey]]:
        most = _KEYS_AT_ONCE if self.keys.width == 1 else MOST_TUPLES
        for start in range(0, len(keys), most):
            yield keys[start : start + most]


def _and(where: bytes, condition: bytes) -> bytes:
    """``where``: a WHERE clause with a leading space, or b""; ``condition``: b"" for none."""
    return where + (b" AND " if where else b" WHERE ") + condition if condition else where


def _joined(keys: Iterable[RowKey]) -> list[JoinedLiterals]:
    return [b",".join(key.target) for key in keys]


def _mapped_bound(plan: TablePlan, bound: Bound) -> Bound:
    mapped: list[bytes] = []
    for index, value in zip(plan.source_key, bound, strict=False):
        mapping = plan.columns[index].mapping
        mapped.append(b"%d" % (int(value) + mapping.prefix) if isinstance(mapping, PartitionId) else value)
    return tuple(mapped)
