"""The compiled rules of one shard table: how its rows are filtered, mapped and routed.

Made once per table by worker/rules from the subtask's configuration and the table's structure;
executed per row by the decoder (stream, fix-up) and by the chunk reader. Frozen and picklable:
plans travel into Spark tasks.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from shardmerge.proto.sql_lexer import quote_name
from shardmerge.worker.core.table import Column, Table


@dataclass(frozen=True, slots=True)
class PartitionId:
    """``partition id``: the new id is ``prefix | original``.

    ``prefix`` holds instance, schema and table numbers in the bits above ``bits``; an original
    id that is negative or does not fit ``bits`` is an error, never wrapped. Layout (docs/architecture.md):
    bit 63 is 0, then 4 bits instance, 7 schema, 8 table, 44 original; a part given as "" takes no
    bits and widens the rest.

    ``is_shared``: the column refers to another shard table's ids; ids of one range may be in several shard tables.
    """

    prefix: int
    bits: int
    is_shared: bool = False

    @property
    def last(self) -> int:
        """The highest id of the range, which begins at ``prefix``."""
        return self.prefix + (1 << self.bits) - 1


@dataclass(frozen=True, slots=True)
class AddPrefix:
    text: str


@dataclass(frozen=True, slots=True)
class AddSuffix:
    text: str


@dataclass(frozen=True, slots=True)
class Constant:
    """The same text in each row, which a route extracts from a name. The shard table has no such column. ``most``: the
    most characters that the route can extract from any name."""

    text: str
    most: int = field(default=256, compare=False)


@dataclass(frozen=True, slots=True)
class ComputedValue:
    """A value that a transform computes from the row. ``item``: of its SELECT list, Spark SQL; of a transform in Python
    the column's type. The shard table has no such column."""

    item: str


Mapping = PartitionId | AddPrefix | AddSuffix | Constant | ComputedValue


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One written column: index in the source table's row image (-1: of a Constant or ComputedValue), its name at the
    target, its mapping."""

    index: int
    column: Column
    target_name: str
    mapping: Mapping | None = None

    @property
    def is_constant(self) -> bool:
        return isinstance(self.mapping, Constant)

    @property
    def is_computed(self) -> bool:
        return isinstance(self.mapping, ComputedValue)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """An expression filter of one table: rows for which its SQL is true are filtered out; "": no expression.

    ``rule``: its name; ``columns``: indexes into the plan's ``read_columns`` of the columns in its expressions.
    """

    rule: str
    columns: tuple[int, ...]
    insert: str = ""
    update_old: str = ""
    update_new: str = ""
    delete: str = ""


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A user's function in Python, which computes columns. ``has_filter``: its first result is whether the target has
    the row."""

    module: str
    name: str
    has_filter: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class RowTransform:
    """The transform of a table's rows, without the computed columns, which the plan has.

    ``rule``: its name; ``filter``: Spark SQL that rows must meet, or the function that decides it, "" for none;
    ``inputs``: indexes into the table's columns of the columns in its expressions; ``has_star``: columns that it does
    not name are kept unchanged. ``python``: the function that computes the columns; None: Spark SQL does.
    """

    rule: str
    filter: str
    inputs: tuple[int, ...]
    has_star: bool
    python: PythonFunction | None = None


class TargetTable(NamedTuple):
    """The name of a target table. A tuple, because loops over thousands of shard tables compare it."""

    schema: str
    table: str

    @property
    def names(self) -> tuple[str, str]:
        return self.schema, self.table

    @property
    def dotted(self) -> str:
        """In messages, without quotation marks."""
        return f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        """As SQL."""
        return f"{quote_name(self.schema)}.{quote_name(self.table)}"


@lru_cache(maxsize=8192)
def _target(schema: str, table: str) -> TargetTable:
    """One object per name: a comparison of equal names is then one of identities."""
    return TargetTable(schema, table)


@lru_cache(maxsize=8192)
def _quoted(schema: str, table: str) -> str:
    return _target(schema, table).quoted


class AutoIncrement(enum.Enum):
    """What becomes of the shard table's AUTO_INCREMENT in a target table that is created."""

    KEEP = "keep"
    AFTER_MAX = "after-max"
    """Added when the table is loaded."""
    NONE = "none"


class ExtractInKey(enum.Enum):
    """Whether the constant columns are part of the unique keys of a target table that is created."""

    AUTO = "auto"
    """Of every key whose values no rule keeps apart."""
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How the rows of one shard table are written to the target.

    ``columns``: the columns that are written, in source order (generated ones are absent), then the constant ones.
    ``key``: indexes into ``columns`` of the identifying key; () for a table without a key. Constant columns belong to
    the key, at its end: they distinguish shard tables where the target's key does.
    ``one_lane``: the target has a further unique key, so order between its rows matters.
    ``shard``: a number unique among this subtask's plans, which distinguishes the owners of a key.
    ``may_lack_rows``: rules may filter out changes of the table, so that it is not known which of its keys the target
    holds. ``own_keys``: no other shard table can have a row under one of its keys: with ``may_lack_rows``, a row may
    replace the row that exists under its key.
    ``skipped_kinds``, ``stop_kinds``: the kinds of row changes that an event filter drops, or stops before: the bits
    ``1 << ChangeKind``. ``filters``: filters on the rows' values at the source, before mapping (they number
    ``read_columns``). ``staged``: rows are decoded for the row stage (worker/rules/stage), which converts them to the
    target's rows.
    ``lane_group``: the targets of one group have one lane together; "": the target is alone. ``hash_name``: the name
    by which keys get their lanes; "": ``target_name``. ``is_cascaded``: the
    source changes rows of the table by foreign keys, and does not log these changes.
    ``transform``: None if the table has no transform. ``auto_increment``: of the target table, if it is created.
    ``keep_partitions``: such a table gets the partitions of its shard tables. ``text_as_utf8``: for a target that lacks
    the source's character sets: its texts are sent as UTF-8, with the characters that a client reads at the source.
    ``extract_in_key``: of a table that is created. ``own_columns``: lower-case names at the target of columns that have
    no value which another shard table has. ``completed_by``: of a plan by which rows are decoded for the row stage: the
    plan by which the decoder may already write them for the target, without the columns that are computed; None: it may
    not.
    """

    shard: int
    source: str
    table: Table
    target_schema: str
    target_table: str
    columns: tuple[ColumnPlan, ...]
    key: tuple[int, ...]
    one_lane: bool = False
    may_lack_rows: bool = False
    own_keys: bool = False
    skipped_kinds: int = 0
    stop_kinds: int = 0
    filters: tuple[RowFilter, ...] = ()
    staged: bool = False
    transform: RowTransform | None = None
    auto_increment: AutoIncrement = AutoIncrement.NONE
    keep_partitions: bool = False
    lane_group: str = ""
    is_cascaded: bool = False
    hash_name: str = ""
    text_as_utf8: bool = False
    extract_in_key: ExtractInKey = ExtractInKey.NEVER
    own_columns: frozenset[str] = frozenset()
    completed_by: TablePlan | None = None

    @property
    def has_further_key(self) -> bool:
        """Whether the shard table has a unique key in addition to the identifying one."""
        names = {self.columns[at].column.name for at in self.key if not self.columns[at].is_constant}
        return any(set(unique) != names for unique in self.table.unique_keys)

    @property
    def read_columns(self) -> tuple[ColumnPlan, ...]:
        """The columns of the row as it is read, before rules that look at whole rows."""
        if self.transform is None:
            return self.columns
        return tuple(
            ColumnPlan(index, column, column.name)
            for index, column in enumerate(self.table.columns)
            if not column.generated
        )

    @property
    def source_key(self) -> tuple[int, ...]:
        """The columns of ``key`` that the shard table has itself."""
        return tuple(index for index in self.key if not self.columns[index].is_constant)

    @property
    def constant_columns(self) -> tuple[str, ...]:
        """The target's names of the columns that routes extract from names."""
        return tuple(column.target_name for column in self.columns if column.is_constant)

    @property
    def target(self) -> TargetTable:
        return _target(self.target_schema, self.target_table)

    @property
    def target_name(self) -> str:
        """The target table as SQL, quoted."""
        return _quoted(self.target_schema, self.target_table)
