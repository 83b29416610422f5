"""Finds which columns of a task's tables refer to which columns of its other tables: by the foreign keys of the shard
tables, and by the task file's references. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.sql.foreign_keys import ForeignKey, foreign_keys
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.table_plan import ColumnPlan, PartitionId, TablePlan
from shardmerge.worker.core.table_plan import Mapping as ColumnMapping
from shardmerge.worker.rules.references import ColumnReference
from shardmerge.worker.rules.router import TableRoute
from shardmerge.worker.rules.rules import Rules


@dataclass(frozen=True, slots=True)
class Relation:
    """``columns`` of shard table ``child`` refer to ``to_columns`` of shard table ``parent``, in this order.

    ``key``: the foreign key; None for a reference of the task file.
    """

    child: TablePlan
    columns: tuple[ColumnPlan, ...]
    parent: TablePlan
    to_columns: tuple[ColumnPlan, ...]
    key: ForeignKey | None

    @property
    def text(self) -> str:
        """The relation of the target tables, as messages show it."""
        return (
            f"{self.child.target_table}.{_listed(self.columns)} to {self.parent.target_table}."
            f"{_listed(self.to_columns)}"
        )

    @property
    def is_mapped_alike(self) -> bool:
        """Whether the values of both sides have the same mapping."""
        return all(
            same_mapping(column.mapping, to.mapping) for column, to in zip(self.columns, self.to_columns, strict=True)
        )


@dataclass(frozen=True, slots=True)
class NoRelation:
    """A foreign key or reference of a shard table for which the target tables have no counterpart. ``is_key``: it is
    a foreign key. ``is_outside``: it refers to a table that takes no part in the task."""

    child: TablePlan
    text: str
    why: str
    is_key: bool = False
    is_outside: bool = False


def relations_of(
    rules: Rules, plans: Sequence[TablePlan], creations: Mapping[int, str]
) -> Iterator[Relation | NoRelation]:
    """The relations among the shard tables of one source, in the order of ``plans``, each once.

    ``creations``: the CREATE TABLE of each plan's shard table, by the plan's number. Raises ``config.REFERENCE_SHARD``.
    """
    by_name = {rules.references.table_key(plan.table.schema, plan.table.name): plan for plan in plans}
    for plan in plans:
        found: set[tuple[object, ...]] = set()
        for made in (
            *_by_foreign_keys(rules, plan, by_name, creations.get(plan.shard, "")),
            *_by_references(rules, plan, by_name),
        ):
            if isinstance(made, Relation):
                same = (made.parent.shard, *sorted(_pairs(made)))
                if same in found:
                    continue
                found.add(same)
            yield made


def same_mapping(one: ColumnMapping | None, other: ColumnMapping | None) -> bool:
    """Whether both map every value to the same one."""
    if isinstance(one, PartitionId) and isinstance(other, PartitionId):
        return (one.prefix, one.bits) == (other.prefix, other.bits)
    return one == other


def _by_foreign_keys(
    rules: Rules, plan: TablePlan, by_name: Mapping[tuple[str, str], TablePlan], creation: str
) -> Iterator[Relation | NoRelation]:
    try:
        keys = foreign_keys(creation) if creation else ()
    except UnreadableCreateTable as error:
        yield NoRelation(plan, "its foreign keys", str(error), is_key=True)
        return
    for key in keys:
        text = f"foreign key {key.name} to {key.table}"
        parent = by_name.get(rules.references.table_key(key.schema or plan.table.schema, key.table))
        if parent is None:
            yield NoRelation(plan, text, f"{key.table} takes no part in the task", is_key=True, is_outside=True)
            continue
        yield _relation(plan, key.columns, parent, key.to_columns, text, key)


def _by_references(
    rules: Rules, plan: TablePlan, by_name: Mapping[tuple[str, str], TablePlan]
) -> Iterator[Relation | NoRelation]:
    route = TableRoute(plan.target_schema, plan.target_table)
    for reference in rules.references.of(route):
        if written(plan, reference.column) is None:
            continue  # not every shard table needs to have the column
        shard = rules.referred_shard(reference, plan.table.schema, plan.table.name, route)
        parent = by_name.get(rules.references.table_key(shard.schema, shard.table))
        if parent is None:
            yield NoRelation(plan, _text(reference), f"{shard.schema}.{shard.table} does not exist at the source")
            continue
        yield _relation(plan, (reference.column,), parent, (reference.to_column,), _text(reference), None)


def _relation(
    plan: TablePlan,
    columns: Sequence[str],
    parent: TablePlan,
    to_columns: Sequence[str],
    text: str,
    key: ForeignKey | None,
) -> Relation | NoRelation:
    own = [written(plan, column) for column in columns]
    to = [written(parent, column) for column in to_columns]
    for where, names, found in ((plan, columns, own), (parent, to_columns, to)):
        for name, column in zip(names, found, strict=True):
            if column is None:
                why = f"column {name} of {where.target_table} is not written by the task"
                return NoRelation(plan, text, why, is_key=key is not None)
    return Relation(plan, tuple(filter(None, own)), parent, tuple(filter(None, to)), key)


def written(plan: TablePlan, column: str) -> ColumnPlan | None:
    """The written column that the shard table has under this name."""
    return next((each for each in plan.columns if each.index >= 0 and each.column.name.lower() == column.lower()), None)


def _text(reference: ColumnReference) -> str:
    return f"reference {reference.text}"


def _pairs(relation: Relation) -> Iterator[tuple[str, str]]:
    for column, to in zip(relation.columns, relation.to_columns, strict=True):
        yield column.target_name, to.target_name


def _listed(columns: Sequence[ColumnPlan]) -> str:
    names = [column.target_name for column in columns]
    return names[0] if len(names) == 1 else f"({', '.join(names)})"
