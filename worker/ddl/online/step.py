"""What a statement is in the course of an online schema change: pure, by the names in it.

gh-ost ("doc/understanding-output.md", "doc/command-line-flags.md", cut-over) swaps atomically or in two steps;
pt-online-schema-change(1), "--[no]swap-tables", atomically. Renames count one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from worker.ddl.clause import ClauseKind
from worker.ddl.online.records import Away, Seen
from worker.ddl.plan import Scene, Shard
from worker.ddl.statement import (
    AlterTable,
    CreateIndex,
    CreateTable,
    Ddl,
    DropIndex,
    DropSchema,
    DropTables,
    RenameTables,
)
from worker.ddl.tables import TableName
from worker.ddl.words import NameAt
from worker.rules.online import OnlineNames


@dataclass(frozen=True, slots=True)
class Made:
    """The shadow table ``name`` comes to be."""

    name: TableName
    ddl: CreateTable


@dataclass(frozen=True, slots=True)
class Altered:
    """The shadow table ``name`` changes."""

    name: TableName
    ddl: AlterTable | CreateIndex | DropIndex


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no shadow table ``name`` any more, nor a shard table under that name."""

    name: TableName


@dataclass(frozen=True, slots=True)
class Strange:
    """The shadow table ``name`` comes from nobody knows where."""

    name: TableName
    why: str


@dataclass(frozen=True, slots=True)
class Left:
    """``shard`` bears the name ``name`` from here on, and nobody has taken its place yet."""

    shard: Shard
    name: TableName


Change = Made | Altered | Gone | Strange | Left


@dataclass(frozen=True, slots=True)
class Swap:
    """The shadow table ``shadow`` takes the place of ``shard``."""

    shard: Shard
    shadow: TableName


@dataclass(frozen=True, slots=True)
class Step:
    """``changes``: in this order, before ``swaps``. ``rest``: what is left of the statement for the task's own tables;
    None: nothing. ``mixed``: a name that the statement also renames, so that its meaning is not to be told; "" for
    none."""

    rest: Ddl | None
    changes: tuple[Change, ...] = ()
    swaps: tuple[Swap, ...] = ()
    mixed: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.swaps and not self.mixed


@dataclass(frozen=True, slots=True)
class Course:
    """``seen``: the records. ``holds``: whether a table of that name is the stream's affair; ``scene``: with its
    shard tables."""

    names: OnlineNames
    seen: Mapping[TableName, Seen]
    holds: Callable[[str, str], bool]
    scene: Scene

    def shadow(self, name: TableName) -> bool:
        """Whether the table is a shadow table of one of the stream's."""
        own = self.names.shadow_of(name[1])
        return bool(own) and (self.holds(name[0], own) or self.holds(name[0].lower(), own.lower()))

    def recorded(self, name: TableName) -> TableName | None:
        """Under which name there is a record of the table. A server with lower_case_table_names=1 logs names as they
        were typed."""
        return next((each for each in (name, _lowered(name)) if each in self.seen), None)

    def away(self, name: TableName) -> Shard | None:
        """The shard table that bears this name for a while."""
        at = self.recorded(name)
        record = self.seen[at] if at is not None else None
        if not isinstance(record, Away):
            return None
        return next((shard for shard in self.scene.shards.values() if shard.number == record.number), None)


def read_step(ddl: Ddl, course: Course) -> Step:
    """See the module."""
    match ddl:
        case CreateTable():
            return _created(ddl, course)
        case AlterTable():
            return _altered(ddl, course)
        case CreateIndex() | DropIndex():
            name = ddl.table.name
            return Step(None, (Altered(name, ddl),)) if course.shadow(name) else Step(ddl)
        case DropTables(tables=tables):
            gone = (at for table in tables if (at := course.recorded(table.name)) is not None)
            return Step(ddl, tuple(map(Gone, gone)))
        case DropSchema(schema=schema):
            gone = (name for name in course.seen if name[0] in (schema, schema.lower()))
            return Step(ddl, tuple(Gone(name) for name in gone if course.shadow(name) or course.away(name)))
        case RenameTables(pairs=pairs):
            return _renamed([(old.name, new) for old, new in pairs], ddl, course)
        case _:
            return Step(ddl)


def with_away(scene: Scene, course: Course) -> dict[TableName, Shard]:
    """The scene's shard tables, found by the names too that they bear for a while."""
    away = {name: shard for name in course.seen if (shard := course.away(name)) is not None}
    return {**away, **scene.shards}


def _created(ddl: CreateTable, course: Course) -> Step:
    name = ddl.table.name
    if course.shadow(name):
        is_there = ddl.if_not_exists and course.recorded(name) is not None
        return Step(None, () if is_there else (Made(name, ddl),))
    shard = course.scene.find(ddl.table)
    if shard is not None and any(course.away(each) is shard for each in course.seen):
        return Step(None, mixed=".".join(name))  # the rows of the one that is away are not to be lost by it
    return Step(ddl)


_WITHOUT_STRUCTURE = frozenset({ClauseKind.RENAME_TABLE, ClauseKind.HOW})


def _altered(ddl: AlterTable, course: Course) -> Step:
    name = ddl.table.name
    new = [name for clause in ddl.clauses if clause.kind is ClauseKind.RENAME_TABLE for name in clause.names]
    only_renames = all(clause.kind in _WITHOUT_STRUCTURE for clause in ddl.clauses)
    is_shadow = course.shadow(name)
    changes = (Altered(name, ddl),) if is_shadow and not only_renames else ()
    if not new:
        return Step(None if is_shadow else ddl, changes)
    if not is_shadow and not only_renames:
        return Step(ddl)
    step = _renamed([(name, new[-1])], ddl, course)
    return Step(None if is_shadow else step.rest, (*changes, *step.changes), step.swaps, step.mixed)


@dataclass(slots=True)
class _Found:
    changes: list[Change] = field(default_factory=list[Change])
    swaps: list[Swap] = field(default_factory=list[Swap])


def _renamed(pairs: list[tuple[TableName, NameAt]], ddl: Ddl, course: Course) -> Step:
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
        return Step(ddl)
    return Step(None, tuple(found.changes), tuple(found.swaps), next((".".join(name) for name in others), ""))


def _moved(
    origin: TableName, name: TableName, into: Mapping[TableName, TableName], course: Course, found: _Found
) -> bool:
    """Whether the move is one of an online schema change, or of tables that are none of the stream's. Where one end is
    a shard table, the other need not be called after it: tools put underscores before a name that is taken."""
    shards, names = course.scene.shards, course.names
    taken = shards.get(name) or shards.get(_lowered(name))
    leaving = shards.get(origin) or shards.get(_lowered(origin))
    away, recorded = course.away(origin), course.recorded(origin)
    if away is not None and recorded is not None:
        if taken is not away and not names.trash_of(name[1]):
            return False
        found.changes.append(Gone(recorded))
        if taken is not away:
            found.changes.append(Left(away, name))
        return True
    if leaving is not None:
        if not names.trash_of(name[1]):
            return False
        if _lowered(leaving.name) not in map(_lowered, into):
            found.changes.append(Left(leaving, name))
        return True
    if names.shadow_of(origin[1]) and taken is not None:
        found.swaps.append(Swap(taken, recorded or origin))
        return True
    if course.scene.routed(*name):
        return False
    if recorded is not None:
        found.changes.append(Gone(recorded))
    if course.shadow(name):
        found.changes.append(Strange(name, f"it came by RENAME of {'.'.join(origin)}"))
    return True


def _lowered(name: TableName) -> TableName:
    return name[0].lower(), name[1].lower()
