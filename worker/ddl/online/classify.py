"""Classifies a statement's role in an online schema change, by the table names in it. Pure.

gh-ost ("doc/understanding-output.md", "doc/command-line-flags.md", cut-over) swaps atomically or in two steps;
pt-online-schema-change(1), "--[no]swap-tables", swaps atomically. Renames apply one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.token_reader import NameAt
from shardmerge.worker.ddl.decide.actions import DdlContext, ShardTarget
from shardmerge.worker.ddl.sql.statement import (
    AlterTable,
    CreateIndex,
    CreateTable,
    Ddl,
    DropIndex,
    DropSchema,
    DropTables,
    RenameTables,
)
from shardmerge.worker.rules.online_ddl_names import OnlineNames
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records.shadow_tables import AwayTable, ShadowRecord


@dataclass(frozen=True, slots=True)
class ShadowCreated:
    """The shadow table ``name`` is created."""

    name: TableName
    ddl: CreateTable


@dataclass(frozen=True, slots=True)
class ShadowAltered:
    """The shadow table ``name`` is altered."""

    name: TableName
    ddl: AlterTable | CreateIndex | DropIndex


@dataclass(frozen=True, slots=True)
class ShadowRemoved:
    """``name`` is no longer a shadow table, nor a shard table that was renamed away."""

    name: TableName


@dataclass(frozen=True, slots=True)
class UnknownShadow:
    """The origin of the shadow table ``name`` is unknown. ``why``: for people."""

    name: TableName
    why: str


@dataclass(frozen=True, slots=True)
class RenamedAway:
    """``shard`` has the name ``name`` from here on, and no table has taken its old name yet."""

    shard: ShardTarget
    name: TableName


Change = ShadowCreated | ShadowAltered | ShadowRemoved | UnknownShadow | RenamedAway


@dataclass(frozen=True, slots=True)
class Swap:
    """The shadow table ``shadow`` replaces ``shard``."""

    shard: ShardTarget
    shadow: TableName


@dataclass(frozen=True, slots=True)
class OnlineStep:
    """``changes``: in this order, before ``swaps``. ``rest``: the part of the statement for the task's own tables;
    None: nothing. ``mixed``: another name that the statement also renames, so that its effect cannot be derived; "" for
    none."""

    rest: Ddl | None
    changes: tuple[Change, ...] = ()
    swaps: tuple[Swap, ...] = ()
    mixed: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.swaps and not self.mixed


@dataclass(frozen=True, slots=True)
class OnlineContext:
    """``records``: of shadow tables. ``holds``: whether the stream handles a table of that name. ``ddl_context``: with
    the stream's shard tables."""

    names: OnlineNames
    records: Mapping[TableName, ShadowRecord]
    holds: Callable[[str, str], bool]
    ddl_context: DdlContext

    def is_shadow(self, name: TableName) -> bool:
        """Whether the table is a shadow table of one of the stream's tables."""
        own = self.names.shadow_of(name[1])
        return bool(own) and (self.holds(name[0], own) or self.holds(name[0].lower(), own.lower()))

    def recorded(self, name: TableName) -> TableName | None:
        """The name under which the table is recorded; None: it is not. A server with lower_case_table_names=1 logs
        names as typed."""
        return next((each for each in (name, _lowered(name)) if each in self.records), None)

    def renamed_away(self, name: TableName) -> ShardTarget | None:
        """The shard table that currently has this name, renamed away by the tool; None: there is none."""
        at = self.recorded(name)
        record = self.records[at] if at is not None else None
        if not isinstance(record, AwayTable):
            return None
        return next((shard for shard in self.ddl_context.shards.values() if shard.number == record.number), None)


def classify(ddl: Ddl, course: OnlineContext) -> OnlineStep:
    """The role of ``ddl`` in an online schema change."""
    match ddl:
        case CreateTable():
            return _created(ddl, course)
        case AlterTable():
            return _altered(ddl, course)
        case CreateIndex() | DropIndex():
            name = ddl.table.name
            return OnlineStep(None, (ShadowAltered(name, ddl),)) if course.is_shadow(name) else OnlineStep(ddl)
        case DropTables(tables=tables):
            gone = (at for table in tables if (at := course.recorded(table.name)) is not None)
            return OnlineStep(ddl, tuple(map(ShadowRemoved, gone)))
        case DropSchema(schema=schema):
            gone = (name for name in course.records if name[0] in (schema, schema.lower()))
            return OnlineStep(
                ddl, tuple(ShadowRemoved(name) for name in gone if course.is_shadow(name) or course.renamed_away(name))
            )
        case RenameTables(pairs=pairs):
            return _renamed([(old.name, new) for old, new in pairs], ddl, course)
        case _:
            return OnlineStep(ddl)


def with_renamed_away(scene: DdlContext, course: OnlineContext) -> dict[TableName, ShardTarget]:
    """The context's shard tables, also by the names to which the tool has renamed them away."""
    away = {name: shard for name in course.records if (shard := course.renamed_away(name)) is not None}
    return {**away, **scene.shards}


def _created(ddl: CreateTable, course: OnlineContext) -> OnlineStep:
    name = ddl.table.name
    if course.is_shadow(name):
        is_there = ddl.if_not_exists and course.recorded(name) is not None
        return OnlineStep(None, () if is_there else (ShadowCreated(name, ddl),))
    shard = course.ddl_context.find(ddl.table)
    if shard is not None and any(course.renamed_away(each) is shard for each in course.records):
        return OnlineStep(None, mixed=".".join(name))  # the rows of the table that was renamed away must not be lost
    return OnlineStep(ddl)


_WITHOUT_STRUCTURE = frozenset({ClauseKind.RENAME_TABLE, ClauseKind.HOW})


def _altered(ddl: AlterTable, course: OnlineContext) -> OnlineStep:
    name = ddl.table.name
    new = [name for clause in ddl.clauses if clause.kind is ClauseKind.RENAME_TABLE for name in clause.names]
    only_renames = all(clause.kind in _WITHOUT_STRUCTURE for clause in ddl.clauses)
    is_shadow = course.is_shadow(name)
    changes = (ShadowAltered(name, ddl),) if is_shadow and not only_renames else ()
    if not new:
        return OnlineStep(None if is_shadow else ddl, changes)
    if not is_shadow and not only_renames:
        return OnlineStep(ddl)
    step = _renamed([(name, new[-1])], ddl, course)
    return OnlineStep(None if is_shadow else step.rest, (*changes, *step.changes), step.swaps, step.mixed)


@dataclass(slots=True)
class _Found:
    changes: list[Change] = field(default_factory=list[Change])
    swaps: list[Swap] = field(default_factory=list[Swap])


def _renamed(pairs: list[tuple[TableName, NameAt]], ddl: Ddl, course: OnlineContext) -> OnlineStep:
    origins: dict[TableName, TableName] = {}
    for old, new in pairs:
        origins[new.name] = origins.pop(old, old)
    moves = [(origin, name) for name, origin in origins.items() if origin != name]
    found = _Found()
    others: list[TableName] = []
    into = {name: origin for origin, name in moves}
    for origin, name in moves:
        if not _moved(origin, name, into, course, found):
            others.append(origin)
    if not found.changes and not found.swaps:
        return OnlineStep(ddl)
    return OnlineStep(None, tuple(found.changes), tuple(found.swaps), next((".".join(name) for name in others), ""))


def _moved(
    origin: TableName, name: TableName, into: Mapping[TableName, TableName], course: OnlineContext, found: _Found
) -> bool:
    """Whether the rename is part of an online schema change, or of tables that are not the stream's. Where one name is
    a shard table's, the other need not be derived from it: tools prefix underscores to a name that is in use."""
    shards, names = course.ddl_context.shards, course.names
    taken = shards.get(name) or shards.get(_lowered(name))
    leaving = shards.get(origin) or shards.get(_lowered(origin))
    away, recorded = course.renamed_away(origin), course.recorded(origin)
    if away is not None and recorded is not None:
        if taken is not away and not names.trash_of(name[1]):
            return False
        found.changes.append(ShadowRemoved(recorded))
        if taken is not away:
            found.changes.append(RenamedAway(away, name))
        return True
    if leaving is not None:
        if not names.trash_of(name[1]):
            return False
        if _lowered(leaving.name) not in map(_lowered, into):
            found.changes.append(RenamedAway(leaving, name))
        return True
    if names.shadow_of(origin[1]) and taken is not None:
        found.swaps.append(Swap(taken, recorded or origin))
        return True
    if course.ddl_context.routed(*name):
        return False
    if recorded is not None:
        found.changes.append(ShadowRemoved(recorded))
    if course.is_shadow(name):
        found.changes.append(UnknownShadow(name, f"it was renamed from {'.'.join(origin)}"))
    return True


def _lowered(name: TableName) -> TableName:
    return name[0].lower(), name[1].lower()
