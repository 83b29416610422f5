"""The record of the tables that are joining a running subtask. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, TypeAdapter

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.partitioning import Partitioning
from shardmerge.worker.target.tables.make_targets import plans_for


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """A table that enters the joining tables' stream after the statement at which it was parked."""

    number: int
    place: StatementPlace


@dataclass(frozen=True, slots=True)
class KeptName:
    """The name of a table that was dropped in the joining tables' stream: a table that is created there with this name
    belongs to the stream too."""

    number: int
    schema: str
    table: str


@dataclass(frozen=True, slots=True)
class Joining:
    """``partitioning``: of the joining tables alone, by the rules under which they are copied. ``start``: they need no
    change before it, so the relay log must reach back to it while their own stream has no checkpoints. ``replays``:
    the subtask's own lanes have applied their rows up to there, so nothing is copied. ``entries``: tables that still
    have to enter their stream. ``skips``: statements up to this one have no effect: the recorded structures contain
    them. ``kept``: names of tables that were dropped in their stream."""

    partitioning: Annotated[Partitioning, Field(alias="dealing")]
    start: SourcePosition
    replays: bool = False
    entries: tuple[PendingEntry, ...] = ()
    skips: StatementPlace | None = None
    kept: tuple[KeptName, ...] = ()

    def to_json(self) -> str:
        return _JSON.dump_json(self, by_alias=True).decode()

    @staticmethod
    def from_json(text: str) -> Joining | None:
        """None for "": nothing is joining."""
        return _JSON.validate_json(text) if text else None

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the tables that join, including those that still have to enter the stream."""
        return self.partitioning.shards | {entry.number for entry in self.entries}

    def names(self, tables: tuple[Table, ...]) -> frozenset[TableName]:
        return frozenset((tables[number].schema, tables[number].name) for number in self.numbers)


_JSON = TypeAdapter(Joining)


def keep_unchanged(joining: Joining, source_id: str, tables: tuple[Table, ...], wanted: Rules) -> Joining | None:
    """``joining`` without the tables that the rules ``wanted`` would copy differently; None: no table remains.

    Raises the rules' errors.
    """
    partitioning = joining.partitioning
    if joining.replays:
        return joining  # the target has their rows already
    now = {plan.shard: plan for plan in plans_for(wanted, source_id, tables, partitioning.shards)}
    before = {
        plan.shard: plan for plan in plans_for(partitioning.compiled_rules(), source_id, tables, partitioning.shards)
    }
    same = frozenset(shard for shard in partitioning.shards if shard in now and now[shard] == before.get(shard))
    if same == partitioning.shards:
        return joining
    return replace(joining, partitioning=replace(partitioning, shards=same)) if same else None


def member_numbers(partitioning: Partitioning | None, joining: Joining | None, parked: Iterable[int]) -> frozenset[int]:
    """Numbers of the subtask's shard tables, whichever stream applies their rows, or none. The records must come from
    one consistent read: a table moves from one of these records to another in one transaction."""
    own = partitioning.shards if partitioning is not None else frozenset[int]()
    joins = joining.numbers if joining is not None else frozenset[int]()
    return own | joins | frozenset(parked)
