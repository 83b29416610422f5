"""Writes the foreign keys of the shard tables as statements for the target, for a cut-over. Pure.

Nothing here is executed by a task: while rows are replicated, a foreign key of the target would check nothing (the
task's sessions have foreign_key_checks = 0) and would make statements of the sources fail, such as DROP INDEX.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules.relations import NoRelation, Relation

_MOST_NAME = 64


@dataclass(frozen=True, slots=True)
class KeyStatements:
    """``count``: the number of rows without a partner, which must be 0; ``add``, ``drop``: the key."""

    name: str
    count: str
    add: str
    drop: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The target cannot have the key. ``why``: for people."""

    why: str


@dataclass(frozen=True, slots=True)
class TargetKey:
    """Equal foreign keys of ``tables``, which are shard tables of one target."""

    target: TargetTable
    reference: str
    tables: tuple[str, ...]
    made: KeyStatements | LeftOut


UniqueKeys = Callable[[TablePlan], Iterable[Sequence[str]]]
"""The unique keys that the target of a plan has or will have, by the names of its columns there."""


def target_keys(found: Iterable[Relation | NoRelation], unique_keys: UniqueKeys) -> tuple[TargetKey, ...]:
    """The foreign keys of each target, by target and reference. References of the task file are no keys."""
    equal: dict[tuple[TargetTable, str, tuple[str, ...]], list[Relation | NoRelation]] = {}
    actions: dict[tuple[TargetTable, str], set[str]] = {}
    for each in found:
        if isinstance(each, NoRelation):
            if each.is_key:
                equal.setdefault((each.child.target, each.text, (each.why,)), []).append(each)
        elif each.key is not None:
            equal.setdefault((each.child.target, each.text, _problems(each, unique_keys)), []).append(each)
            actions.setdefault((each.child.target, each.text), set()).add(each.key.actions)
    return tuple(
        _key(shards, problems, actions.get((target, text), set()))
        for (target, text, problems), shards in sorted(equal.items(), key=lambda item: item[0])
    )


def _key(shards: Sequence[Relation | NoRelation], problems: tuple[str, ...], actions: set[str]) -> TargetKey:
    first = shards[0]
    if len(actions) > 1:
        differing = ", ".join(sorted(each or "none" for each in actions))
        problems = (*problems, f"the shard tables have different actions: {differing}")
    tables = tuple(sorted(f"{each.child.table.schema}.{each.child.table.name}" for each in shards))
    made = LeftOut("; ".join(problems)) if problems or isinstance(first, NoRelation) else _statements(first)
    return TargetKey(first.child.target, first.text, tables, made)


def _problems(relation: Relation, unique_keys: UniqueKeys) -> tuple[str, ...]:
    problems: list[str] = []
    if not relation.is_mapped_alike:
        problems.append(f"another mapping than the column to which it refers: add it to `references` ({relation.text})")
    wanted = {column.target_name.lower() for column in relation.to_columns}
    if not any({name.lower() for name in key} == wanted for key in unique_keys(relation.parent)):
        listed = ", ".join(column.target_name for column in relation.to_columns)
        problems.append(f"{relation.parent.target_table} has no unique key over exactly ({listed}) at the target")
    return tuple(problems)


def _statements(relation: Relation) -> KeyStatements:
    child, parent = relation.child, relation.parent
    columns = [quote_name(column.target_name) for column in relation.columns]
    to_columns = [quote_name(column.target_name) for column in relation.to_columns]
    name = key_name(child.target_table, [column.target_name for column in relation.columns], parent.target_table)
    pairs = list(zip(columns, to_columns, strict=True))
    present = " AND ".join(f"c.{column} IS NOT NULL" for column in columns)
    same = " AND ".join(f"p.{to} = c.{column}" for column, to in pairs)
    actions = relation.key.actions if relation.key is not None else ""
    return KeyStatements(
        name,
        f"SELECT COUNT(*) FROM {child.target_name} AS c WHERE {present} "
        f"AND NOT EXISTS (SELECT 1 FROM {parent.target_name} AS p WHERE {same})",
        f"ALTER TABLE {child.target_name} ADD CONSTRAINT {quote_name(name)} FOREIGN KEY ({', '.join(columns)}) "
        f"REFERENCES {parent.target_name} ({', '.join(to_columns)}){' ' if actions else ''}{actions}",
        f"ALTER TABLE {child.target_name} DROP FOREIGN KEY {quote_name(name)}",
    )


def key_name(table: str, columns: Sequence[str], parent: str) -> str:
    """The name of a target's foreign key. Names are unique per schema, and the shard tables' own names are not those
    of the target: ``orders_user_id_users``. A longer name than servers allow is cut, and ends with a checksum."""
    name = "_".join((table, *columns, parent))
    if len(name) <= _MOST_NAME:
        return name
    end = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _MOST_NAME - 9]}_{end}"
