"""Decides which references of a source's tables are compared, and builds the SQL that finds their orphans. Pure.

An orphan is a row of the target whose partner, the row to which it refers, is missing at the target although the
shard table's row has its partner at the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.mysql.information_schema import select_expression
from shardmerge.worker.core.sql.table_text import read_create_table
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules.relations import NoRelation, Relation
from shardmerge.worker.target.tables.extracted_keys import extracted_texts
from shardmerge.worker.target.tables.row_ownership import AllRows, KeyRange, text_literal
from shardmerge.worker.verify.compare.canonical_values import NotComparable
from shardmerge.worker.verify.compare.compared_tables import ComparedTable, NotCompared, compared_table
from shardmerge.worker.verify.compare.keys import KeyReader


@dataclass(frozen=True, slots=True)
class RelationShard:
    """A shard table whose references are compared. ``parent``: the shard table to which it refers, without filters:
    each change of a row counts. ``parent_target``: that table's target."""

    relation: str
    child: ComparedTable
    parent: TablePlan
    parent_target: Table
    partner: str
    """The SELECT list of the partner's key; the first column is NULL without a partner."""


@dataclass(frozen=True, slots=True)
class ComparedRelation:
    """The equal references of the shard tables of one source and one target; pickled into the Spark tasks.

    ``first``: index of the report of the first of ``shards``; the others follow. ``orphaned``: the condition of the
    target's rows that refer to no row of the target. ``scanned``: the condition of the rows that can belong to
    ``shards``, "" for all.
    """

    shards: tuple[RelationShard, ...]
    orphaned: str
    scanned: str
    first: int = 0

    def scan(self) -> ComparedTable:
        """The target's rows, as those of the first shard table."""
        return replace(self.shards[0].child, owned=AllRows())


@dataclass(frozen=True, slots=True)
class RelationNotCompared:
    """References of a shard table that cannot be compared, and the reason."""

    relation: str
    table: NotCompared


@dataclass(frozen=True, slots=True)
class Definitions:
    """``sources``: the shard tables' CREATE TABLE, by the plan's number. ``targets``: each target table, with its
    CREATE TABLE, by quoted name. ``everyone``: see compared_table. ``excluded``: why a shard table's rows are not
    complete at the target, by its number."""

    sources: Mapping[int, str]
    targets: Mapping[str, tuple[Table, str]]
    everyone: Sequence[TablePlan] | str
    excluded: Mapping[int, str]


def compared_relations(
    relations: Iterable[Relation | NoRelation], known: Definitions
) -> tuple[list[ComparedRelation], list[RelationNotCompared]]:
    """What is compared, and what is not. References to tables outside of the task are left out."""
    groups: dict[tuple[str, str, str], list[RelationShard]] = {}
    refused: list[RelationNotCompared] = []
    conditions: dict[tuple[str, str, str], str] = {}
    for relation in relations:
        if isinstance(relation, NoRelation):
            if not relation.is_outside:
                refused.append(RelationNotCompared(relation.text, NotCompared(relation.child, relation.why)))
            continue
        made = _shard(relation, known)
        if isinstance(made, NotCompared):
            refused.append(RelationNotCompared(relation.text, made))
            continue
        orphaned = _orphaned(relation)
        group = (relation.child.target_name, orphaned, made.child.keys().target_list)
        groups.setdefault(group, []).append(made)
        conditions[group] = orphaned
    found: list[ComparedRelation] = []
    first = 0
    for group, shards in groups.items():
        found.append(ComparedRelation(tuple(shards), conditions[group], _scanned(shards), first))
        first += len(shards)
    return found, refused


def _shard(relation: Relation, known: Definitions) -> RelationShard | NotCompared:
    child, parent = relation.child, relation.parent
    for plan, role in ((child, ""), (parent, f"of {parent.table.name}: ")):
        if plan.shard in known.excluded:
            return NotCompared(child, role + known.excluded[plan.shard])
    own, other = known.targets.get(child.target_name), known.targets.get(parent.target_name)
    table = compared_table(child, None if own is None else own[0], known.everyone, strays=False)
    if isinstance(table, NotCompared):
        return table
    if other is None:
        return NotCompared(child, f"the target table of {parent.table.name} does not exist")
    if parent.transform is not None or not parent.key:
        why = "a transform changes its rows" if parent.transform is not None else "it has no key"
        return NotCompared(child, f"of {parent.table.name}: {why}")
    parent_target, creation = other
    to_source = [each.column.name for each in relation.to_columns]
    to_target = [each.target_name for each in relation.to_columns]
    # Without an index each row would be looked up by a scan of the other table.
    if not read_create_table(creation).has_index_on(to_target):
        return NotCompared(child, f"no index of {parent.target_table} at the target begins with {_and(to_target)}")
    if not read_create_table(known.sources[parent.shard]).has_index_on(to_source):
        return NotCompared(child, f"no index of {parent.table.name} at the source begins with {_and(to_source)}")
    try:
        KeyReader(parent, parent_target)
    except NotComparable as reason:
        return NotCompared(child, f"of {parent.table.name}: {reason}")
    return RelationShard(
        relation.text,
        replace(table, plan=unfiltered(child)),
        unfiltered(parent),
        parent_target,
        _partner(relation),
    )


def unfiltered(plan: TablePlan) -> TablePlan:
    """The plan with which each change of a row is decoded, whatever rules leave it out."""
    return replace(plan, filters=(), staged=False, skipped_kinds=0, stop_kinds=0)


def _orphaned(relation: Relation) -> str:
    child, parent = relation.child.target_name, relation.parent.target_name
    pairs = [
        (f"{child}.{quote_name(column.target_name)}", f"p.{quote_name(to.target_name)}")
        for column, to in zip(relation.columns, relation.to_columns, strict=True)
    ]
    # A reference with a NULL refers to nothing.
    present = " AND ".join(f"{column} IS NOT NULL" for column, _ in pairs)
    same = " AND ".join((*(f"{to}={column}" for column, to in pairs), *_same_texts(relation)))
    return f"{present} AND NOT EXISTS (SELECT 1 FROM {parent} AS p WHERE {same})"


def _same_texts(relation: Relation) -> Iterator[str]:
    """Conditions for rows of the one shard table to which the child's shard table refers, by the texts that the routes
    extract: a row of another one with the same id is no partner. Equal for all shard tables where that is possible."""
    own, to = extracted_texts(relation.child), extracted_texts(relation.parent)
    for name, text in to.items():
        column = quote_name(name)
        other = f"{relation.child.target_name}.{column}" if own.get(name) == text else text_literal(text)
        yield f"p.{column}={other}"


def _partner(relation: Relation) -> str:
    child, parent = relation.child, relation.parent
    outer = child.table.quoted
    same = " AND ".join(
        f"p.{quote_name(to.column.name)}={outer}.{quote_name(column.column.name)}"
        for column, to in zip(relation.columns, relation.to_columns, strict=True)
    )
    inner = f"{parent.table.quoted} AS p WHERE {same} LIMIT 1"
    key = [parent.columns[at] for at in parent.key]
    return ", ".join(
        "''" if item.is_constant else f"(SELECT {select_expression(item.column)} FROM {inner})" for item in key
    )


def _scanned(shards: Sequence[RelationShard]) -> str:
    """The smallest range with the rows of all of ``shards``."""
    ranges = [shard.child.owned for shard in shards if isinstance(shard.child.owned, KeyRange)]
    if len(ranges) < len(shards) or len({each.column for each in ranges}) > 1:
        return ""
    first, last = min(each.first for each in ranges), max(each.last for each in ranges)
    return KeyRange(ranges[0].column, first, last).condition


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)
