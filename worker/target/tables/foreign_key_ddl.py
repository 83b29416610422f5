"""Writes the foreign keys of the shard tables as statements for the target, for a cut-over. Pure.

Nothing here is executed by a task: while rows are replicated, a foreign key of the target would check nothing (the
task's sessions have foreign_key_checks = 0) and would make statements of the sources fail, such as DROP INDEX.

Where columns that routes extract from names are part of the key to which a foreign key refers, it has these columns
too. That is possible if the shard tables that refer to each other have the same texts in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules.relations import NoRelation, Relation
from shardmerge.worker.target.tables.extracted_keys import extracted_texts

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
    extracted: dict[tuple[TargetTable, str], tuple[str, ...]] = {}
    actions: dict[tuple[TargetTable, str], set[str]] = {}
    for each in found:
        if isinstance(each, NoRelation):
            if each.is_key:
                equal.setdefault((each.child.target, each.text, (each.why,)), []).append(each)
        elif each.key is not None:
            equal.setdefault((each.child.target, each.text, _problems(each, unique_keys)), []).append(each)
            actions.setdefault((each.child.target, each.text), set()).add(each.key.actions)
            extracted.setdefault((each.child.target, each.text), _extracted(each, unique_keys) or ())
    return tuple(
        _key(shards, problems, actions.get((target, text), set()), extracted.get((target, text), ()))
        for (target, text, problems), shards in sorted(equal.items(), key=lambda item: item[0])
    )


def _key(
    shards: Sequence[Relation | NoRelation], problems: tuple[str, ...], actions: set[str], extracted: tuple[str, ...]
) -> TargetKey:
    first = shards[0]
    if len(actions) > 1:
        differing = ", ".join(sorted(each or "none" for each in actions))
        problems = (*problems, f"the shard tables have different actions: {differing}")
    tables = tuple(sorted(each.child.table.dotted for each in shards))
    made = LeftOut("; ".join(problems)) if problems or isinstance(first, NoRelation) else _statements(first, extracted)
    return TargetKey(first.child.target, first.text, tables, made)


def _problems(relation: Relation, unique_keys: UniqueKeys) -> tuple[str, ...]:
    problems: list[str] = []
    if not relation.is_mapped_alike:
        problems.append(f"another mapping than the column to which it refers: add it to `references` ({relation.text})")
    extracted = _extracted(relation, unique_keys)
    if extracted is None:
        listed = ", ".join(column.target_name for column in relation.to_columns)
        problems.append(f"{relation.parent.target_table} has no unique key over exactly ({listed}) at the target")
        return tuple(problems)
    own, to = extracted_texts(relation.child), extracted_texts(relation.parent)
    apart = [name for name in extracted if own.get(name.lower()) != to[name.lower()]]
    if apart:
        problems.append(
            f"{', '.join(apart)}, of the key to which it refers, has other texts in {relation.child.target_table}"
        )
    elif extracted and relation.key is not None and "SET NULL" in relation.key.actions.upper():
        problems.append(f"{relation.key.actions} would set {', '.join(extracted)} to NULL, too")
    return tuple(problems)


def _extracted(relation: Relation, unique_keys: UniqueKeys) -> tuple[str, ...] | None:
    """The extracted columns of the target's unique key to which the relation refers; None: there is no such key."""
    wanted = {column.target_name.lower() for column in relation.to_columns}
    extracted = extracted_texts(relation.parent).keys()
    found = [
        tuple(name for name in key if name.lower() not in wanted)
        for key in unique_keys(relation.parent)
        if wanted <= {name.lower() for name in key} <= wanted | extracted
    ]
    return min(found, key=len, default=None)


def _statements(relation: Relation, extracted: Sequence[str]) -> KeyStatements:
    child, parent = relation.child, relation.parent
    columns = [quote_name(name) for name in (*(column.target_name for column in relation.columns), *extracted)]
    to_columns = [quote_name(name) for name in (*(column.target_name for column in relation.to_columns), *extracted)]
    name = key_name(child.target_table, [column.target_name for column in relation.columns], parent.target_table)
    pairs = list(zip(columns, to_columns, strict=True))
    present = " AND ".join(f"c.{quote_name(column.target_name)} IS NOT NULL" for column in relation.columns)
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
