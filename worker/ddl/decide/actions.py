"""Converts a statement to actions on a subtask's tables. Pure.

There is one action per table that the statement concerns, in the statement's order. A statement that would lose or
invent rows is refused with a coded error; the stream then stops before the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.token_reader import NameAt
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.given_names import creates_here
from shardmerge.worker.ddl.sql.statement import (
    AlterSchema,
    AlterTable,
    CreateIndex,
    CreateSchema,
    CreateTable,
    Ddl,
    DropIndex,
    DropSchema,
    DropTables,
    RenameTables,
    TruncateTable,
)
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName, TableScope


@dataclass(frozen=True, slots=True)
class ShardTarget:
    """A shard table with its target. ``shard_count``: the shard tables of that target, of all the task's sources."""

    plan: TablePlan
    shard_count: int

    @property
    def number(self) -> int:
        return self.plan.shard

    @property
    def name(self) -> TableName:
        return self.plan.table.schema, self.plan.table.name

    @property
    def target(self) -> TargetTable:
        return self.plan.target


@dataclass(frozen=True, slots=True)
class Alter:
    """The structure of ``shard`` changes."""

    shard: ShardTarget


@dataclass(frozen=True, slots=True)
class Create:
    """The table ``name``, which the rules let through, is created. ``replaces``: the table that it replaces.
    ``number``: the number that the main stream has given it; None: it gets the next one."""

    name: TableName
    ddl: CreateTable
    replaces: ShardTarget | None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """``shard`` is dropped with its rows."""

    shard: ShardTarget


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of ``shard`` are removed."""

    shard: ShardTarget


@dataclass(frozen=True, slots=True)
class Rename:
    """Tables get other names, all at once. The rules let each of them through also under its new name, unless an
    operator has overridden the statement."""

    moves: tuple[tuple[ShardTarget, TableName], ...]


Action = Alter | Create | Drop | Truncate | Rename


def shard_numbers(action: Action) -> tuple[int, ...]:
    """Numbers of the existing shard tables that the action concerns."""
    match action:
        case Create(replaces=replaced):
            return () if replaced is None else (replaced.number,)
        case Rename(moves=moves):
            return tuple(shard.number for shard, _ in moves)
        case _:
            return (action.shard.number,)


def removed_by(actions: Iterable[Action]) -> frozenset[int]:
    """Numbers of the shard tables that do not exist after these actions."""
    gone = (action.shard if isinstance(action, Drop) else _replaced(action) for action in actions)
    return frozenset(shard.number for shard in gone if shard is not None)


def _replaced(action: Action) -> ShardTarget | None:
    return action.replaces if isinstance(action, Create) else None


def _no_number() -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class DdlContext:
    """The tables around a statement. ``shards``: those that take part, by name. ``routed``: whether the rules let a
    (schema, table) through. ``is_view``: whether it is a view at the source, which RENAME TABLE renames too.
    ``scope``: the stream's tables; None: the stream has all tables that the rules let through. ``reserved_number``: the
    number that the main stream has given to the table that the statement creates in this stream; None: it has left
    this stream no table."""

    task: str
    source: str
    shards: Mapping[TableName, ShardTarget]
    routed: Callable[[str, str], bool]
    is_view: Callable[[str, str], bool]
    scope: TableScope | None = None
    reserved_number: Callable[[], int | None] = _no_number

    def find(self, name: NameAt | TableName) -> ShardTarget | None:
        """The shard table of that name. A server with lower_case_table_names=1 logs names as they were typed, while
        its tables have them in lower case."""
        schema, table = (name.schema, name.table) if isinstance(name, NameAt) else name
        return self.shards.get((schema, table)) or self.shards.get((schema.lower(), table.lower()))

    def is_routed(self, name: NameAt) -> bool:
        return self.routed(name.schema, name.table) or self.routed(name.schema.lower(), name.table.lower())

    def is_foreign(self, name: TableName) -> bool:
        """Whether another stream has the name."""
        return self.scope is not None and self.scope.owned_name(*name) is None

    def refusal(self, spec: ErrorSpec, statement: Statement, **more: object) -> ShardmergeError:
        return spec(
            source=self.source,
            task=self.task,
            position=statement.position,
            statement=" ".join(statement.text.split()),
            **more,
        )


def actions_of(ddl: Ddl, statement: Statement, scene: DdlContext) -> tuple[Action, ...]:
    """The actions of ``ddl``; none when it does not concern the tables of ``scene``.

    Raises MOVES_ROWS, RENAME_LEAVES.
    """
    match ddl:
        case CreateSchema() | AlterSchema():
            return ()  # a schema's default charset applies to new tables, whose CREATE TABLE names it
        case DropSchema(schema=schema):
            return tuple(Drop(shard) for name, shard in sorted(scene.shards.items()) if _is_in(name, schema))
        case DropTables(tables=tables):
            return tuple(Drop(shard) for shard in map(scene.find, tables) if shard is not None)
        case TruncateTable(table=table):
            shard = scene.find(table)
            return () if shard is None else (Truncate(shard),)
        case CreateTable(table=table):
            return tuple(_make(ddl, scene))
        case CreateIndex(table=table) | DropIndex(table=table):
            shard = scene.find(table)
            return () if shard is None else (Alter(shard),)
        case AlterTable():
            return tuple(_alter(ddl, statement, scene))
        case RenameTables(pairs=pairs, if_exists=if_exists):
            return _rename([(old.name, new) for old, new in pairs], statement, scene, if_exists=if_exists)


def _is_in(name: TableName, schema: str) -> bool:
    return name[0] in (schema, schema.lower())


def _make(ddl: CreateTable, scene: DdlContext) -> Iterator[Action]:
    there = scene.find(ddl.table)
    if not scene.is_routed(ddl.table) or (there is not None and ddl.if_not_exists):
        return
    name, scope = ddl.table.name, scene.scope
    if scope is None:
        yield Create(name, ddl, there)
    elif not creates_here(ddl, scope):
        if there is not None:
            yield Drop(there)  # another stream creates the table that replaces it
    elif scope.only is None:
        yield Create(name, ddl, there)
    else:
        number = scene.reserved_number()
        if number is not None or scope.owned_name(*name) is not None:
            yield Create(name, ddl, there, number)


def _alter(ddl: AlterTable, statement: Statement, scene: DdlContext) -> Iterator[Action]:
    shard = scene.find(ddl.table)
    moving = [clause for clause in ddl.clauses if clause.kind is ClauseKind.PARTITION_ROWS]
    for name in (name for clause in moving for name in clause.names):
        if scene.find(name) is not None or scene.is_routed(name):
            raise scene.refusal(errors.ddl.MOVES_ROWS, statement, table=f"{name.schema}.{name.table}")
    if shard is not None and (moving or ddl.ignore):
        raise scene.refusal(errors.ddl.MOVES_ROWS, statement, table=".".join(shard.name))
    names = _new_names(ddl)
    moves = _rename([((ddl.table.schema, ddl.table.table), names[-1])], statement, scene) if names else ()
    if shard is not None and not all(clause.kind in _ONLY_RENAME for clause in ddl.clauses):
        yield Alter(shard)
    yield from moves


_ONLY_RENAME = frozenset({ClauseKind.RENAME_TABLE, ClauseKind.HOW})


def renames_of(ddl: Ddl, scene: DdlContext) -> tuple[Rename, ...]:
    """The new names that ``ddl`` gives to shard tables, also those that the rules do not let through."""
    match ddl:
        case RenameTables(pairs=pairs, if_exists=if_exists):
            moves, _ = _moved([(old.name, new) for old, new in pairs], scene, if_exists=if_exists)
        case AlterTable() if names := _new_names(ddl):
            moves, _ = _moved([((ddl.table.schema, ddl.table.table), names[-1])], scene)
        case _:
            return ()
    return (Rename(tuple(moves)),) if moves else ()


def _new_names(ddl: AlterTable) -> list[NameAt]:
    return [name for clause in ddl.clauses if clause.kind is ClauseKind.RENAME_TABLE for name in clause.names]


def _rename(
    pairs: list[tuple[TableName, NameAt]], statement: Statement, scene: DdlContext, *, if_exists: bool = False
) -> tuple[Action, ...]:
    moves, strangers = _moved(pairs, scene, if_exists=if_exists)
    for name in strangers:
        if scene.routed(*name) and not scene.is_view(*name):
            raise scene.refusal(
                errors.ddl.RENAME_LEAVES,
                statement,
                table="a table that the rules do not let through",
                new=".".join(name),
                reason="under the new name the rules let it through, with rows that were never copied",
            )
    for shard, name in moves:
        if not scene.routed(*name):
            raise scene.refusal(
                errors.ddl.RENAME_LEAVES,
                statement,
                table=".".join(shard.name),
                new=".".join(name),
                reason="under the new name the rules do not let it through",
            )
    return (Rename(tuple(moves)),) if moves else ()


def _moved(
    pairs: list[tuple[TableName, NameAt]], scene: DdlContext, *, if_exists: bool = False
) -> tuple[list[tuple[ShardTarget, TableName]], set[TableName]]:
    """Follow the names through the pairs, which apply one after the other: a swap may return to the first name.
    ``if_exists``: pairs of missing tables have no effect. Returns the shard tables that have other names then, and the
    new names of tables that take no part."""
    at = {shard.name: shard for shard in scene.shards.values()}
    strangers: set[TableName] = set()
    foreign: set[TableName] = set()
    for old, new in pairs:
        shard = at.pop(old, None) or at.pop((old[0].lower(), old[1].lower()), None)
        name, is_foreign = new.name, old in foreign or (old not in strangers and scene.is_foreign(old))
        if if_exists and shard is None and not is_foreign and old not in strangers and scene.routed(*old):
            continue  # the rules let the name through: a table of that name would be one of the shard tables
        strangers -= {old, name}
        foreign -= {old, name}
        if shard is not None:
            at[name] = shard
        elif is_foreign:
            foreign.add(name)
        else:
            strangers.add(name)
    return [(shard, name) for name, shard in at.items() if shard.name != name], strangers
