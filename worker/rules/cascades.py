"""Finds the foreign keys whose cascades can be derived exactly, and says why others cannot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from shardmerge.worker.core.cascades import CascadeKey, CascadeKeys
from shardmerge.worker.core.sql.foreign_keys import ForeignKey, ForeignKeyAction, foreign_keys
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan
from shardmerge.worker.rules.relations import same_mapping


@dataclass(frozen=True, slots=True)
class NotDerivable:
    """A cascading foreign key whose changes cannot be derived. ``table``: its table; ``why``: for people, with what to
    change."""

    table: str
    key: str
    why: str

    @property
    def text(self) -> str:
        return f"{self.table} ({self.key}): {self.why}"


@dataclass(frozen=True, slots=True)
class FoundCascades:
    keys: CascadeKeys
    refused: tuple[NotDerivable, ...] = ()


def find_cascades(
    plans: Iterable[TablePlan], creations: Mapping[int, str], *, case_sensitive: bool = True
) -> FoundCascades:
    """The cascading keys of the tables. ``creations``: the SHOW CREATE TABLE of each table, by the table's number.

    Raises :class:`shardmerge.worker.core.sql.table_text.UnreadableCreateTable`.
    """
    known = tuple(plans)

    def folded(schema: str, table: str) -> tuple[str, str]:
        return (schema, table) if case_sensitive else (schema.lower(), table.lower())

    by_name = {folded(plan.table.schema, plan.table.name): plan for plan in known}
    found: list[CascadeKey] = []
    refused: list[NotDerivable] = []
    names = {plan.shard: _name(plan) for plan in known}
    for child in known:
        taken: set[str] = set()
        for key in foreign_keys(creations.get(child.shard, "")) if child.shard in creations else ():
            if not key.cascades:
                continue
            parent = by_name.get(folded(key.schema or child.table.schema, key.table))
            columns = {name.lower() for name in key.columns}
            why = _refusal(child, parent, key, shares_columns=bool(taken & columns))
            taken |= columns
            if why or parent is None:
                refused.append(NotDerivable(_name(child), key.name, why))
                continue
            found.append(
                CascadeKey(
                    parent.shard,
                    child.shard,
                    key.name,
                    tuple(_written(child, name) for name in key.columns),
                    tuple(_written(parent, name) for name in key.to_columns),
                    key.on_delete,
                    key.on_update,
                )
            )
    keys = CascadeKeys(tuple(found))
    for key in found:
        below = [each for each in keys.of_parent.get(key.child, ()) if not set(each.to_columns).isdisjoint(key.columns)]
        if key.on_delete is ForeignKeyAction.SET_NULL and below:
            # The result would depend on the order in which the engine follows several keys of one row.
            why = (
                f"a column that it sets to NULL is referred to by {names[below[0].child]} ({below[0].name}); make one "
                "of them RESTRICT"
            )
            refused.append(NotDerivable(names[key.child], key.name, why))
        if key.parent != key.child and key.parent in keys.descendants(key.child):
            why = "its table is in a cycle of cascading foreign keys; make one of them RESTRICT"
            refused.append(NotDerivable(names[key.child], key.name, why))
    return FoundCascades(keys, tuple(refused))


def marked_cascaded(plans: Iterable[TablePlan], keys: CascadeKeys) -> tuple[TablePlan, ...]:
    """``plans``, those whose rows the source changes by cascade marked so."""
    return tuple(replace(plan, is_cascaded=True) if plan.shard in keys.children else plan for plan in plans)


def _refusal(child: TablePlan, parent: TablePlan | None, key: ForeignKey, *, shares_columns: bool) -> str:
    """Why the changes of a cascading key cannot be derived; "" if they can."""
    if parent is None:
        return f"it refers to {key.schema or child.table.schema}.{key.table}, which takes no part in the task; add it"
    if ForeignKeyAction.SET_DEFAULT in (key.on_delete, key.on_update):
        return "SET DEFAULT is not derived; use SET NULL, CASCADE or RESTRICT"
    for plan in (child, parent):
        if plan.transform is not None or plan.filters or plan.skipped_kinds or plan.stop_kinds:
            return f"a filter or transform applies to {_name(plan)}; take it away"
    if shares_columns:
        return "another cascading foreign key of the table has one of its columns; make one of them RESTRICT"
    for own, to in zip(key.columns, key.to_columns, strict=True):
        column, other = _column(child, own), _column(parent, to)
        if column is None or other is None:
            return f"column {own} or {to} is generated; refer to another column"
        for each in (column, other):
            if each.column.kind is not ValueKind.INTEGER:
                return f"column {each.column.name} is no integer; only integers are derived"
        if not same_mapping(column.mapping, other.mapping):
            return f"{own} has another mapping than {to}; add an entry of `references`"
    if not child.own_keys:
        return (
            f"the key of {child.target_schema}.{child.target_table} does not identify the shard table of a row; give a "
            "column of it a `partition id`"
        )
    return ""


def _column(plan: TablePlan, name: str) -> ColumnPlan | None:
    lower = name.lower()
    return next((each for each in plan.columns if each.index >= 0 and each.column.name.lower() == lower), None)


def _written(plan: TablePlan, name: str) -> str:
    """The name as the table has it: a foreign key may be written in another case."""
    column = _column(plan, name)
    return name if column is None else column.column.name


def _name(plan: TablePlan) -> str:
    return f"{plan.table.schema}.{plan.table.name}"
