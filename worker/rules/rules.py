"""All rules of one subtask, and the plans that they make of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.block_allow import BlockAllowRules, BlockAllowVerdict
from shardmerge.proto.config.rules.reserved_names import SYSTEM_SCHEMAS
from shardmerge.proto.errors import config
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, Constant, Mapping, PartitionId, TablePlan
from shardmerge.worker.rules.column_mapping import ColumnMapper, MappingRule, identifies_shard
from shardmerge.worker.rules.event_filter import EventFilterRules
from shardmerge.worker.rules.expression_filter import ExpressionFilters
from shardmerge.worker.rules.online_ddl_names import OnlineNames
from shardmerge.worker.rules.references import ColumnReference, References, ReferredShard
from shardmerge.worker.rules.router import Router, TableRoute
from shardmerge.worker.rules.transform_rules import Transforms


@dataclass(frozen=True, slots=True)
class Rules:
    """Pure and picklable. Answers for a table never change: callers may keep them per (schema, table)."""

    meta_schema: str
    block_allow: BlockAllowRules
    router: Router
    mapper: ColumnMapper
    online: OnlineNames = field(default_factory=OnlineNames)
    events: EventFilterRules = field(default_factory=EventFilterRules)
    expressions: ExpressionFilters = field(default_factory=ExpressionFilters)
    transforms: Transforms = field(default_factory=Transforms)
    references: References = field(default_factory=References)
    keep_partitions: bool = False
    text_as_utf8: bool = False

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> Rules:
        """Compile a subtask's rules; raises ``config.PATTERN``, ``config.EXPRESSION_REFUSED``."""
        return Rules(
            subtask.meta_schema,
            BlockAllowRules.from_config(subtask.task, subtask.block_allow_list, subtask.case_sensitive),
            Router.from_config(subtask),
            ColumnMapper.from_config(subtask),
            OnlineNames.from_config(subtask.task, subtask.online_ddl),
            EventFilterRules.from_config(subtask),
            ExpressionFilters.from_config(subtask),
            Transforms.from_config(subtask),
            References.from_config(subtask),
            subtask.partitions == pb.PARTITIONS_KEEP,
            subtask.text_as_utf8,
        )

    def route(self, schema: str, table: str, source: str = "") -> TableRoute | None:
        """The target of the table's rows; None when it takes no part. ``source``: "" for the rules' own, see
        :class:`Router`. Raises ``config.AMBIGUOUS_ROUTE``."""
        return self.router.route(schema, table, source) if self.judge(schema, table).passes else None

    def judge(self, schema: str, table: str) -> BlockAllowVerdict:
        """Whether the table takes part, with the reason.

        The server's own schemas never take part, nor does a schema named like the task's meta schema: on
        a server that is the target of another task it holds that task's checkpoints. Nor do shadow and
        trash tables of a tool for online schema changes.
        """
        if self._reserved(schema):
            return BlockAllowVerdict(False, "a schema of the server itself, or of this program's records")
        changed = self.online.shadow_of(table)
        if changed:
            return BlockAllowVerdict(False, f"the shadow table of an online schema change of {changed}")
        changed = self.online.trash_of(table)
        if changed:
            return BlockAllowVerdict(False, f"left over from an online schema change of {changed}")
        return self.block_allow.judge(schema, table)

    def may_hold(self, schema: str) -> bool:
        """Whether a table of the schema, present or future, could take part; True when in doubt."""
        return not self._reserved(schema) and self.block_allow.may_pass(schema)

    def plan(self, shard: int, source: str, table: Table) -> TablePlan:
        """The plan for a table for which :meth:`route` returns a target.

        ``shard``: the number of the table among the subtask's. A key that cannot identify rows at the target (a column
        of it is generated) is replaced by the next unique key, or by none. Raises what
        :meth:`route`, :meth:`mappings`, :meth:`ExpressionFilters.of_table` and :meth:`Transforms.of_table`
        raise, and ValueError for a table that takes no part.
        """
        route = self.route(table.schema, table.name, source)
        if route is None:
            raise ValueError(f"{table.full_name} takes no part in the task")
        mappings = self.mappings(table, route)
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
            may_lack_rows=rows.may_lack_rows or bool(filters),
            own_keys=self._own_keys(route, [columns[at].mapping for at in key]),
            skipped_kinds=rows.skipped_kinds,
            stop_kinds=rows.stop_kinds,
            filters=filters,
            transform=transformed[0] if transformed is not None else None,
            auto_increment=route.auto_increment,
            keep_partitions=self.keep_partitions,
            text_as_utf8=self.text_as_utf8,
            extract_in_key=route.extract_in_key,
            own_columns=self._own_columns(route, columns) if constant else frozenset(),
        )

    def mappings(self, table: Table, route: TableRoute) -> dict[int, Mapping]:
        """The mapping of each mapped column, by its index in the table: by a column mapping, or as the column that it
        refers to.

        Raises what :meth:`ColumnMapper.mappings` and :meth:`referred_shard` raise, and ``config.REFERENCE_CLASH``.
        """
        found = self.mapper.mappings(table)
        for reference in self.references.of(route):
            index = next(
                (at for at, each in enumerate(table.columns) if each.name.lower() == reference.column.lower()), None
            )
            if index is None:
                continue  # other shard tables have it
            shard, mapped = self.referred_mapping(reference, table.schema, table.name, route)
            if mapped is None:
                continue
            rule, mapping = mapped
            self.mapper.check_column(rule, table, table.columns[index])
            if isinstance(mapping, PartitionId):
                mapping = replace(mapping, is_shared=shard.is_shared)
            if found.setdefault(index, mapping) != mapping:
                raise config.REFERENCE_CLASH(
                    source=self.mapper.source,
                    schema=table.schema,
                    table=table.name,
                    column=reference.column,
                    reference=reference.text,
                )
        return found

    def mapping_by_name(self, schema: str, table: str, column: str) -> Mapping | None:
        """The mapping that a column of this name has; None: none. Raises what :meth:`mappings` raises, but for the
        column's type."""
        route = self.route(schema, table)
        if route is None:
            return None
        found = self.mapper.mapping_of(schema, table, column)
        if found is None:
            for reference in self.references.of(route):
                if found is None and reference.column.lower() == column.lower():
                    _, found = self.referred_mapping(reference, schema, table, route)
        return None if found is None else found[1]

    def referred_mapping(
        self,
        reference: ColumnReference,
        schema: str,
        table: str,
        route: TableRoute,
        followed: tuple[ColumnReference, ...] = (),
    ) -> tuple[ReferredShard, tuple[MappingRule, Mapping] | None]:
        """What :meth:`referred_shard` returns, and the mapping of the column there with its rule; None: it has none.
        Raises what :meth:`referred_shard` and :meth:`ColumnMapper.mapping_of` raise.

        That column may have its mapping from a reference, too, as a part of a composite key. ``followed``: the
        references that led here, none of which is followed twice.
        """
        shard = self.referred_shard(reference, schema, table, route)
        mapped = self.mapper.mapping_of(shard.schema, shard.table, reference.to_column)
        to = self.route(shard.schema, shard.table)
        if mapped is not None or to is None:
            return shard, mapped
        followed = (*followed, reference)
        for further in self.references.of(to):
            if further.column.lower() == reference.to_column.lower() and further not in followed:
                next_shard, mapped = self.referred_mapping(further, shard.schema, shard.table, to, followed)
                if mapped is not None:
                    return replace(shard, is_shared=shard.is_shared or next_shard.is_shared), mapped
        return shard, None

    def referred_shard(self, reference: ColumnReference, schema: str, table: str, route: TableRoute) -> ReferredShard:
        """The shard table to which one column of shard table ``schema``.``table`` refers. Raises
        ``config.REFERENCE_SHARD``, also if that table's rows do not go to the target that the reference names."""
        shard = self.references.shard(reference, schema, table, route)
        to = self.route(shard.schema, shard.table)
        if to is None or not self.references.is_target(reference, route, to):
            goes = "takes no part in the task" if to is None else f"goes to {to.target_schema}.{to.target_table}"
            raise config.REFERENCE_SHARD(
                source=self.mapper.source,
                reference=reference.text,
                schema=schema,
                table=table,
                reason=f"it would refer to {shard.schema}.{shard.table}, which {goes}",
            )
        return shard

    def _own_columns(self, route: TableRoute, columns: Sequence[ColumnPlan]) -> frozenset[str]:
        """See :class:`TablePlan`."""
        return frozenset(column.target_name.lower() for column in columns if self._own_keys(route, [column.mapping]))

    def _own_keys(self, route: TableRoute, mappings: Sequence[Mapping | None]) -> bool:
        """Whether one of the mappings of the key's columns (``mappings``) distinguishes the target's shard tables: by
        instance, schema and table, or without the part that is the same for all of them by the routes."""
        parts_of = [
            identifies_shard(mapping)
            for mapping in mappings
            if isinstance(mapping, PartitionId) and not mapping.is_shared
        ]
        if any(all(parts) for parts in parts_of):
            return True
        place = (route.target_schema, route.target_table)
        if self.mapper.layouts > 1:
            return False  # the ranges of several layouts may overlap
        if self.judge(*place).passes and self.router.keeps_name(*place):
            return False  # a shard table with the target's own name would have this target too
        one_schema, one_table = self.router.only_names(*place)
        return any(instance and (schema or one_schema) and (table or one_table) for instance, schema, table in parts_of)

    def _reserved(self, schema: str) -> bool:
        lower = schema.lower()
        return lower in SYSTEM_SCHEMAS or lower == self.meta_schema.lower()


def check_partitions(plans: Iterable[TablePlan]) -> None:
    """Refuse two shard tables whose mapped keys are certain to collide.

    That is the case when both have the same target table, ``partition id`` maps every column of their keys and the
    numbers are the same (for a table whose rows the target may lack, and whose rows therefore may replace existing
    ones, already when it maps one column): names ``t_1`` and ``t_01``, ``t`` and ``t_0``, or tables of two schemas when
    only the table's number counts. Raises ``config.PARTITION_CLASH``.
    """
    first: dict[tuple[object, ...], TablePlan] = {}
    for plan in plans:
        mapped = tuple(
            (column.target_name, column.mapping)
            for column in (plan.columns[index] for index in plan.key)
            if isinstance(column.mapping, PartitionId)
        )
        if not mapped or (len(mapped) < len(plan.source_key) and not (plan.may_lack_rows and plan.own_keys)):
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


def _constant(source: str, table: Table, route: TableRoute, columns: tuple[ColumnPlan, ...]) -> tuple[ColumnPlan, ...]:
    """The columns that the route adds. Raises EXTRACT_CLASH."""
    names = {column.name.lower() for column in table.columns} | {column.target_name.lower() for column in columns}
    for extract in route.extracts:
        if extract.target_column.lower() in names:
            raise config.EXTRACT_CLASH(
                source=source, schema=table.schema, table=table.name, column=extract.target_column
            )
        names.add(extract.target_column.lower())
    return tuple(
        ColumnPlan(-1, _text(extract.target_column), extract.target_column, Constant(extract.text, extract.most))
        for extract in route.extracts
    )


def _text(name: str) -> Column:
    return Column(
        name, ValueKind.STRING, "varchar(256)", nullable=False, charset="utf8mb4", collation="utf8mb4_general_ci"
    )


def _one_lane(table: Table, columns: tuple[ColumnPlan, ...], key: tuple[int, ...]) -> bool:
    """Whether there is a unique key besides the identifying one: then the order between its rows matters."""
    names = {columns[at].column.name for at in key}
    return any(set(unique) != names for unique in table.unique_keys)


def same_route(table: Table, before: Rules, wanted: Rules) -> bool:
    """Whether the rows of a table that takes part under ``before`` go where they went."""
    was, now = before.route(table.schema, table.name), wanted.route(table.schema, table.name)
    if was is None or now is None:
        return False
    return (was.target_schema, was.target_table) == (now.target_schema, now.target_table)
