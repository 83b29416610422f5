"""Decides which names belong to a stream's tables after a statement. Pure.

While tables are parked or join, several streams apply one subtask's tables, and each may be at another place. The
stream that has a table also has the names that the statements give it: that stream renames the table later, and the
main stream must not apply rows under the new name from the statement on. The main stream is the first to execute such a
statement (worker/ddl/driver.py), and its record (``away`` of worker/target/records/partitioning.py) has the names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.token_reader import NameAt
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateTable, Ddl, DropSchema, DropTables, RenameTables
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.partitioning import AwayName


@dataclass(frozen=True, slots=True)
class GivenNames:
    """How a statement changes a set of names. ``gained``: new names with the names that their tables had before.
    ``lost``: names that no table of the set has any more."""

    gained: Mapping[TableName, TableName]
    lost: frozenset[TableName]

    def __bool__(self) -> bool:
        return bool(self.gained or self.lost)

    def apply(self, before: frozenset[TableName]) -> frozenset[TableName]:
        return before.difference(self.lost).union(self.gained)


NO_NAMES = GivenNames({}, frozenset())


def renames_of(ddl: Ddl) -> tuple[tuple[TableName, NameAt], ...]:
    """The renames of tables in ``ddl``, which apply one after the other."""
    match ddl:
        case RenameTables(pairs=pairs):
            return tuple((old.name, new) for old, new in pairs)
        case AlterTable(table=table, clauses=clauses):
            names = [name for each in clauses if each.kind is ClauseKind.RENAME_TABLE for name in each.names]
            return ((table.name, names[-1]),) if names else ()
        case _:
            return ()


def given_names(
    ddl: Ddl, owned: Callable[[TableName], TableName | None], is_routed: Callable[[TableName], bool]
) -> GivenNames:
    """How the renames of ``ddl`` change a set of names. ``owned``: a name's form in the set, None: it is not in it.

    A table of the set that gets a name which the rules do not let through keeps its name in the set: its stream stops
    there.
    """
    origins: dict[TableName, TableName] = {}
    for old, new in renames_of(ddl):
        origins[new.name] = origins.pop(old, old)
    gained: dict[TableName, TableName] = {}
    lost: set[TableName] = set()
    for name, origin in origins.items():
        before, taken = owned(origin), owned(name)
        if name == origin:
            continue
        if before is None:
            lost.update(() if taken is None else (taken,))
        elif is_routed(name):
            gained[name] = before
            lost.add(before)
    return GivenNames(gained, frozenset(lost - gained.keys()))


def creates_here(ddl: CreateTable, scope: TableScope) -> bool:
    """Whether the new table belongs to the stream with ``scope``: a table that is created like another one belongs to
    that one's stream. A stream of joining tables creates such a table only if the main stream has left it the table."""
    is_own, like = scope.owned_name(*ddl.table.name) is not None, ddl.like
    if like is None:
        return is_own
    is_like_own = scope.owned_name(*like.name) is not None
    return is_own and is_like_own if scope.only is None else is_own or is_like_own


def dropped_elsewhere(ddl: Ddl, away: Mapping[TableName, int]) -> frozenset[TableName]:
    """The names of other streams' tables that ``ddl`` drops. ``away``: see :func:`left_to_others`."""
    match ddl:
        case DropTables(tables=tables):
            found = (_found(table.name, away) for table in tables)
            return frozenset(name for name in found if name is not None)
        case DropSchema(schema=schema):
            return frozenset(name for name in away if name[0] in (schema, schema.lower()))
        case _:
            return frozenset()


def left_to_others(
    ddl: Ddl,
    away: Mapping[TableName, int],
    dropped: Collection[int],
    rules: Rules,
    is_own: Callable[[TableName], bool],
) -> tuple[TableName, int] | None:
    """The table that ``ddl`` creates and the main stream leaves to another stream: its name, and the number of a table
    of that stream. ``away``: the names of other streams' tables, with their numbers; ``dropped``: the numbers of those
    that do not exist at the main stream's place; ``is_own``: whether the main stream has a table of the name."""
    if not isinstance(ddl, CreateTable):
        return None
    name = ddl.table.name
    at = _found(name, away)
    if at is not None:
        # Without IF NOT EXISTS, its stream has dropped the table of that name before, or replaces it.
        return None if ddl.if_not_exists and away[at] not in dropped else (at, away[at])
    like = _found(ddl.like.name, away) if ddl.like is not None else None
    if like is None or (ddl.if_not_exists and is_own(name)):
        return None
    if rules.route(*name) is None:
        return None
    return name, away[like]


def reserved_number(place: StatementPlace, left: tuple[AwayName, ...], numbers: frozenset[int]) -> int | None:
    """The number of the table that the statement at ``place`` creates, if the main stream has left it to the stream
    with the tables ``numbers``; None: it has not."""
    return next((item.number for item in left if item.created == place and item.owner in numbers), None)


def _found(name: TableName, names: Mapping[TableName, int]) -> TableName | None:
    return next((each for each in (name, (name[0].lower(), name[1].lower())) if each in names), None)
