"""Which tables are on their way into a running subtask, as it is recorded at the target. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from worker.ddl.records import StatementPlace
from worker.ddl.tables import TableName
from worker.plans import planned
from worker.position import SourcePosition
from worker.replicate.dealing import Dealing
from worker.rules import Rules
from worker.table import Table


@dataclass(frozen=True, slots=True)
class Entry:
    """A table that comes into the joining tables' stream behind the statement before which it has waited."""

    number: int
    place: StatementPlace


@dataclass(frozen=True, slots=True)
class Joining:
    """``dealing``: of the joining tables alone, by the rules under which they are copied. ``start``: no change before
    it is needed for them, so the relay must reach back to it while their own stream has no checkpoints. ``replays``:
    their rows up to there are at the target, by the subtask's own lanes, so nothing is copied. ``entries``: tables
    that are still to come into their stream."""

    dealing: Dealing
    start: SourcePosition
    replays: bool = False
    entries: tuple[Entry, ...] = ()

    def to_json(self) -> str:
        return _JSON.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> Joining | None:
        """None for "": nothing is joining."""
        return _JSON.validate_json(text) if text else None

    @property
    def numbers(self) -> frozenset[int]:
        """Of the tables that join, those to come into their stream included."""
        return self.dealing.shards | {entry.number for entry in self.entries}

    def names(self, tables: tuple[Table, ...]) -> frozenset[TableName]:
        return frozenset((tables[number].schema, tables[number].name) for number in self.numbers)


_JSON = TypeAdapter(Joining)


def kept(joining: Joining, source_id: str, tables: tuple[Table, ...], wanted: Rules) -> Joining | None:
    """``joining`` without the tables that rules ``wanted`` would not have copied as they were; None: none is left.

    Raises the rules' errors.
    """
    dealing = joining.dealing
    if joining.replays:
        return joining  # their rows are at the target already
    now = {plan.shard: plan for plan in planned(wanted, source_id, tables, dealing.shards)}
    before = {plan.shard: plan for plan in planned(dealing.compiled_rules(), source_id, tables, dealing.shards)}
    same = frozenset(shard for shard in dealing.shards if shard in now and now[shard] == before.get(shard))
    if same == dealing.shards:
        return joining
    return replace(joining, dealing=replace(dealing, shards=same)) if same else None
