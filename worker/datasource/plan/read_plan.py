"""What load() fixes: the position of each source, its tables, and the columns of the DataFrame. Pure, picklable.

The plans travel into Spark's tasks. They have no passwords, except where the user wrote one into an option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import DataType, StructField, StructType

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import ColumnPlan, Mapping, TablePlan, TargetTable
from shardmerge.worker.datasource.plan.fixed_position import FixedPosition, to_text
from shardmerge.worker.datasource.plan.frame_types import common_type, spark_type
from shardmerge.worker.datasource.plan.lazy_rules import LazyRules
from shardmerge.worker.datasource.plan.password import Password
from shardmerge.worker.datasource.plan.where import ColumnComparison

POSITIONS = "mysql-shards"
"""Key in the metadata of each column of the DataFrame: the position of each source as ``file:byte``."""

FIXED = "mysql-shards-fixed"
"""Key there: the value of the option ``position`` that reads the same state again."""


@dataclass(frozen=True, slots=True)
class ReadSource:
    """One source: how to reach it (``endpoint`` has no password), ``lazy_rules``: those that apply to its tables.
    ``fixed``: the position that the option ``position`` has for it; None for that of load()."""

    source: str
    endpoint: Endpoint
    password: Password
    lazy_rules: LazyRules
    fixed: FixedPosition | None = None

    def connection(self) -> Endpoint:
        """The endpoint with its password. Raises ``read.OPTION``."""
        return replace(self.endpoint, password=self.password.read())

    def sends_to(self, target: TargetTable, schema: str, table: str) -> bool:
        """Whether the rules send a table's rows to ``target``."""
        route = self.lazy_rules.rules.route(schema, table, self.source)
        return route is not None and (route.target_schema, route.target_table) == target.names

    def may_send(self, target: TargetTable, schema: str) -> bool:
        """Whether the rules could send a table of a schema to ``target``, also one that does not exist now."""
        rules = self.lazy_rules.rules
        routed = any(
            rule.may_lead_to(*target.names) and rule.selector.schema.matches(schema) for rule in rules.router.rules
        )
        # A table without a route keeps its name.
        return rules.may_hold(schema) and (routed or schema == target.schema)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """``columns``: the wanted ones in order, () for all. ``wanted``: what selects the tables, for messages. ``where``:
    comparisons that each row meets.
    ``zero_is_null``: dates that do not exist are NULL. ``most_undo``: bytes of changed rows that a process keeps.
    ``most_inflated``: bytes of a compressed event when it is decompressed."""

    sources: tuple[ReadSource, ...]
    target: TargetTable
    wanted: str
    columns: tuple[str, ...]
    where: tuple[ColumnComparison, ...]
    chunk_rows: int
    zero_is_null: bool
    most_undo: int
    most_inflated: int


@dataclass(frozen=True, slots=True)
class FrameValue:
    """A column of the DataFrame in one shard table. ``slot``: index among the columns that are read; -1 for a
    constant."""

    slot: int
    column: ColumnPlan

    @property
    def mapping(self) -> Mapping | None:
        return self.column.mapping


@dataclass(frozen=True, slots=True)
class ReadTable:
    """One shard table. ``plan``: reads its columns unmapped, those of the key included; its ``shard`` is the table's
    number among those of its source. ``values``: one for each column of the DataFrame."""

    plan: TablePlan
    values: tuple[FrameValue, ...]


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The tables of one source. ``position``: the DataFrame has their state there. ``made``: Unix time at which the
    binlog file of the position was made, which distinguishes it from a later file of the same name."""

    source: ReadSource
    position: SourcePosition
    made: int
    tables: tuple[ReadTable, ...]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """``number``: distinguishes the DataFrames of a process."""

    number: str
    sources: tuple[SourcePlan, ...]
    schema: StructType
    options: ReadOptions


def read_table(number: int, plan: TablePlan, names: Sequence[str]) -> ReadTable:
    """How a shard table is read. ``names``: the columns of the DataFrame, which the table has all."""
    by_name = {column.target_name.lower(): column for column in plan.columns}
    wanted = [by_name[name.lower()] for name in names]
    indexes = sorted({column.index for column in wanted if column.index >= 0} | set(plan.table.key))
    slots = {index: slot for slot, index in enumerate(indexes)}
    table = plan.table
    read = TablePlan(
        shard=number,
        source=plan.source,
        table=table,
        target_schema=plan.target_schema,
        target_table=plan.target_table,
        columns=tuple(ColumnPlan(at, table.columns[at], table.columns[at].name) for at in indexes),
        key=tuple(slots[at] for at in table.key),
    )
    return ReadTable(read, tuple(FrameValue(slots.get(column.index, -1), column) for column in wanted))


def frame_columns(plans: Sequence[TablePlan], wanted: Sequence[str]) -> list[tuple[str, DataType]]:
    """Name and type of each column of the DataFrame: those of the first table, or the ``wanted`` ones. Raises
    ``read.TABLES_DIFFER``, and ``read.OPTION`` for a wanted column that no table has."""
    known = {column.target_name.lower() for plan in plans for column in plan.columns}
    for name in wanted:
        if name.lower() not in known:
            raise errors.read.OPTION(option="columns", reason=f"no table has a column {name}")
    first = {column.target_name.lower(): column.target_name for column in plans[0].columns}
    found: dict[str, tuple[str, DataType | None]] = {
        name.lower(): (first.get(name.lower(), name), None) for name in wanted or first.values()
    }
    for plan in plans:
        columns = {column.target_name.lower(): column for column in plan.columns}
        for key, (name, held) in found.items():
            if key not in columns:
                raise _differs(plan, name, "the table lacks it")
            own = spark_type(columns[key])
            merged = own if held is None else common_type(held, own)
            if merged is None:
                reason = f"its type is {own.simpleString()}, that of other tables {held and held.simpleString()}"
                raise _differs(plan, name, reason)
            found[key] = (name, merged)
        if not wanted:
            for key, column in columns.items():
                if key not in found:
                    raise _differs(plan, column.target_name, f"{plans[0].table.full_name} lacks it")
    return [(name, held) for name, held in found.values() if held is not None]


def _differs(plan: TablePlan, column: str, reason: str) -> ShardmergeError:
    table = plan.table
    return errors.read.TABLES_DIFFER(
        source=plan.source, schema=table.schema, table=table.name, column=column, reason=reason
    )


def frame_schema(columns: Sequence[tuple[str, DataType]], positions: dict[str, FixedPosition]) -> StructType:
    """The schema of the DataFrame, with the positions in the metadata of each column."""
    shown = {name: f"{each.position.file}:{each.position.pos}" for name, each in positions.items()}
    metadata = {POSITIONS: shown, FIXED: to_text(positions)}
    return StructType([StructField(name, held, True, metadata) for name, held in columns])


def unsupported_rule(plan: TablePlan) -> str:
    """Why the rules of a table cannot be applied here; "" if they can."""
    if plan.filters:
        return "the task has an expression filter for it"
    if plan.transform is not None:
        return "the task has a transform for it"
    return "the task has an event filter for its rows" if plan.skipped_kinds or plan.stop_kinds else ""


def same_tables(before: Sequence[Table], after: Sequence[Table]) -> bool:
    """Whether the tables are the same, with the same structures."""
    return [table.structure for table in before] == [table.structure for table in after]
