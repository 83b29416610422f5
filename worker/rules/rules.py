"""All rules of one subtask, and the plan they make of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proto import config_pb2 as pb
from proto.config.block_allow import BlockAllow, Verdict
from proto.config.names import SYSTEM_SCHEMAS
from proto.errors import config
from worker.plan import ColumnPlan, Constant, Mapping, PartitionId, TablePlan
from worker.rules.column_mapping import ColumnMapper, told_by
from worker.rules.event_filter import EventFilter
from worker.rules.expression_filter import ExpressionFilters
from worker.rules.online import OnlineNames
from worker.rules.router import Route, Router
from worker.rules.transform import Transforms
from worker.table import Column, Table, ValueKind


@dataclass(frozen=True, slots=True)
class Rules:
    """Pure and picklable. Answers for a table never change: callers may keep them per (schema, table)."""

    meta_schema: str
    block_allow: BlockAllow
    router: Router
    mapper: ColumnMapper
    online: OnlineNames = field(default_factory=OnlineNames)
    events: EventFilter = field(default_factory=EventFilter)
    expressions: ExpressionFilters = field(default_factory=ExpressionFilters)
    transforms: Transforms = field(default_factory=Transforms)

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> Rules:
        """Compile a subtask's rules; raises ``config.PATTERN``, ``config.EXPRESSION_REFUSED``."""
        return Rules(
            subtask.meta_schema,
            BlockAllow.from_config(subtask.task, subtask.block_allow_list, subtask.case_sensitive),
            Router.from_config(subtask),
            ColumnMapper.from_config(subtask),
            OnlineNames.from_config(subtask.task, subtask.online_ddl),
            EventFilter.from_config(subtask),
            ExpressionFilters.from_config(subtask),
            Transforms.from_config(subtask),
        )

    def route(self, schema: str, table: str) -> Route | None:
        """Where the table's rows go; None when it takes no part. Raises ``config.AMBIGUOUS_ROUTE``."""
        return self.router.route(schema, table) if self.judge(schema, table).passes else None

    def judge(self, schema: str, table: str) -> Verdict:
        """Whether the table takes part, and why.

        The server's own schemas never take part, nor does a schema named like the task's meta schema: on
        a server that is the target of another task it holds that task's checkpoints. Nor do tables that
        are made beside others by a tool for online schema changes.
        """
        if self._reserved(schema):
            return Verdict(False, "a schema of the server itself, or of this program's records")
        beside = self.online.shadow_of(table)
        if beside:
            return Verdict(False, f"the shadow table of an online schema change of {beside}")
        beside = self.online.trash_of(table)
        if beside:
            return Verdict(False, f"left over from an online schema change of {beside}")
        return self.block_allow.judge(schema, table)

    def may_hold(self, schema: str) -> bool:
        """Whether a table of the schema, present or future, could take part; True when in doubt."""
        return not self._reserved(schema) and self.block_allow.may_pass(schema)

    def plan(self, shard: int, source: str, table: Table) -> TablePlan:
        """What becomes of the rows of a table that :meth:`route` lets through.

        ``shard``: the number of the table among the subtask's. A key that the target cannot be
        addressed by (a column of it is generated) gives way to the next unique key, or to none. Raises what
        :meth:`route`, :meth:`ColumnMapper.mappings`, :meth:`ExpressionFilters.of_table` and :meth:`Transforms.of_table`
        raise, and ValueError for a table that takes no part.
        """
        route = self.route(table.schema, table.name)
        if route is None:
            raise ValueError(f"{table.full_name} takes no part in the task")
        mappings = self.mapper.mappings(table)
        columns = tuple(
            ColumnPlan(index, column, column.name, mappings.get(index))
            for index, column in enumerate(table.columns)
            if not column.generated
        )
        filters = self.expressions.of_table(table, columns)
        transformed = self.transforms.of_table(table, mappings)
        if transformed is not None:
            columns = transformed[1]
        key = _key(table, columns)
        one_lane = _one_lane(table, columns, key)
        constant = _constant(source, table, route, columns)
        if key:
            key += tuple(range(len(columns), len(columns) + len(constant)))
        columns += constant
        rows = self.events.rows(table.schema, table.name)
        return TablePlan(
            shard=shard,
            source=source,
            table=table,
            target_schema=route.target_schema,
            target_table=route.target_table,
            columns=columns,
            key=key,
            one_lane=one_lane,
            loose=rows.loose or bool(filters),
            own_keys=self._own_keys(route, [columns[at].mapping for at in key]),
            passed_over=rows.passed_over,
            stops=rows.stops,
            filters=filters,
            transform=transformed[0] if transformed is not None else None,
        )

    def _own_keys(self, route: Route, mappings: Sequence[Mapping | None]) -> bool:
        """``mappings``: of the key's columns. Whether one of them tells the target's shard tables apart: by instance,
        schema and table, or without the part that all of them have in common by the routes."""
        told = [told_by(mapping) for mapping in mappings if isinstance(mapping, PartitionId)]
        if any(all(parts) for parts in told):
            return True
        place = (route.target_schema, route.target_table)
        if self.mapper.layouts > 1:
            return False  # ranges of several layouts may lie in each other
        if self.judge(*place).passes and self.router.keeps_name(*place):
            return False  # a shard table of the target's own name would go there too
        one_schema, one_table = self.router.only_names(*place)
        return any(instance and (schema or one_schema) and (table or one_table) for instance, schema, table in told)

    def _reserved(self, schema: str) -> bool:
        lower = schema.lower()
        return lower in SYSTEM_SCHEMAS or lower == self.meta_schema.lower()


def check_partitions(plans: Iterable[TablePlan]) -> None:
    """Refuse two shard tables whose mapped keys are bound to collide.

    That is when both go to one target table, every column of their keys is mapped by ``partition id`` and the
    numbers are the same (of loose tables, whose rows may replace what they find under a key, already when one column
    is): names ``t_1`` and ``t_01``, ``t`` and ``t_0``, or tables of two schemas when only
    the table's number counts. Raises ``config.PARTITION_CLASH``.
    """
    first: dict[tuple[object, ...], TablePlan] = {}
    for plan in plans:
        mapped = tuple(
            (column.target_name, column.mapping)
            for column in (plan.columns[index] for index in plan.key)
            if isinstance(column.mapping, PartitionId)
        )
        if not mapped or (len(mapped) < len(plan.source_key) and not (plan.loose and plan.own_keys)):
            continue
        other = first.setdefault((plan.target_schema, plan.target_table, mapped), plan)
        if other is not plan:
            raise config.PARTITION_CLASH(
                source=plan.source,
                first=other.table.full_name,
                second=plan.table.full_name,
                target=plan.target_name,
                columns=", ".join(name for name, _ in mapped),
            )


def _key(table: Table, columns: tuple[ColumnPlan, ...]) -> tuple[int, ...]:
    """The identifying key as indexes into ``columns``."""
    place = {plan.index: at for at, plan in enumerate(columns) if plan.index >= 0}
    if all(index in place for index in table.key):
        return tuple(place[index] for index in table.key)
    by_name = {plan.column.name: at for at, plan in enumerate(columns) if plan.index >= 0}
    for names in table.unique_keys:
        at = [by_name.get(name) for name in names]
        usable = tuple(each for each in at if each is not None and not columns[each].column.nullable)
        if len(usable) == len(names):
            return usable
    return ()


def _constant(source: str, table: Table, route: Route, columns: tuple[ColumnPlan, ...]) -> tuple[ColumnPlan, ...]:
    """The columns that the route adds. Raises EXTRACT_CLASH."""
    names = {column.name.lower() for column in table.columns} | {column.target_name.lower() for column in columns}
    for extract in route.extracts:
        if extract.target_column.lower() in names:
            raise config.EXTRACT_CLASH(
                source=source, schema=table.schema, table=table.name, column=extract.target_column
            )
        names.add(extract.target_column.lower())
    return tuple(
        ColumnPlan(-1, _text(extract.target_column), extract.target_column, Constant(extract.text))
        for extract in route.extracts
    )


def _text(name: str) -> Column:
    return Column(
        name, ValueKind.STRING, "varchar(256)", nullable=False, charset="utf8mb4", collation="utf8mb4_general_ci"
    )


def _one_lane(table: Table, columns: tuple[ColumnPlan, ...], key: tuple[int, ...]) -> bool:
    """A unique key beside the identifying one: the order between its rows matters."""
    names = {columns[at].column.name for at in key}
    return any(set(unique) != names for unique in table.unique_keys)
