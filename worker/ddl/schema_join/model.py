"""Inputs of a schema join, and why there may be none. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardmerge.worker.ddl.sql.column_definition import ColumnDefinition
from shardmerge.worker.ddl.sql.table_definition import TableDefinition


@dataclass(frozen=True, slots=True)
class ShardSchema:
    """A shard table's current structure. ``name``: for people, e.g. "source-1 `d`.`t_03`", unique among the table's
    shards. ``dropped``: lower-case names of columns that it dropped while the target kept them. ``one_lane``: one lane
    applies its rows, or it is parked, and one lane applies them when it returns if the target has a further key."""

    name: str
    definition: TableDefinition
    dropped: frozenset[str] = frozenset()
    one_lane: bool = False


@dataclass(frozen=True, slots=True)
class NotJoinable:
    """There is no join. ``reason``: a whole sentence for people. ``subject``: name of the column or index, "" for the
    table's. ``other``: the other shard table concerned, "" for the target or none. ``waits``: whether the shard table
    can be parked as in pessimistic mode until every shard table has reached the statement; otherwise shard tables
    contradict each other or the target, and something must change there first."""

    reason: str
    subject: str = ""
    other: str = ""
    waits: bool = False


@dataclass(frozen=True, slots=True)
class JoinInput:
    """``others``: by name. The rest: see :func:`shardmerge.worker.ddl.schema_join.join.join`."""

    target: TableDefinition
    others: tuple[ShardSchema, ...]
    before: ShardSchema
    after: TableDefinition
    strict: bool
    coming: tuple[ShardSchema, ...] = ()
    completed: frozenset[str] = frozenset()

    def having(self, key: str) -> tuple[tuple[str, ColumnDefinition], ...]:
        """The other shard tables that have the column ``key``: their names and definitions."""
        found = ((shard.name, shard.definition.column(key)) for shard in self.others)
        return tuple((name, each) for name, each in found if each is not None)

    def lacking(self, key: str) -> tuple[str, ...]:
        """Names of the other shard tables that lack the column ``key``."""
        return tuple(shard.name for shard in self.others if shard.definition.column(key) is None)

    def never_had(self, key: str) -> tuple[str, ...]:
        """Of :meth:`lacking`, those that have not dropped it: their rows at the target have its default."""
        found = (shard for shard in self.others if key not in shard.dropped)
        return tuple(shard.name for shard in found if shard.definition.column(key) is None)

    def will_have(self, key: str) -> tuple[tuple[str, ColumnDefinition], ...]:
        """As :meth:`having`, of the parked shard tables after the statements at which they are parked."""
        found = ((shard.name, shard.definition.column(key)) for shard in self.coming)
        return tuple((name, each) for name, each in found if each is not None)

    def will_lack(self, key: str) -> tuple[str, ...]:
        """As :meth:`lacking`, of the parked shard tables after the statements at which they are parked."""
        return tuple(shard.name for shard in self.coming if shard.definition.column(key) is None)


@dataclass(frozen=True, slots=True)
class ColumnsJoined:
    """The result, filled step by step. ``dropped``: columns that this shard table drops while others keep them.
    ``gone``: columns that no shard table has any more."""

    clauses: list[str] = field(default_factory=list[str])
    dropped: set[str] = field(default_factory=set[str])
    gone: set[str] = field(default_factory=set[str])


class NotJoinableError(Exception):
    """There is no join: carries the answer to the caller of join()."""

    def __init__(self, answer: NotJoinable) -> None:
        super().__init__(answer.reason)
        self.answer = answer


def not_joinable(reason: str, subject: str, other: str = "", *, waits: bool = False) -> NotJoinableError:
    """The error to raise. ``waits``: then the reason says so."""
    if waits:
        reason += "; it needs all shard tables: parked as in pessimistic mode"
    return NotJoinableError(NotJoinable(reason, subject, other, waits))
