"""How rows are partitioned to lanes, recorded with the lanes' checkpoints, and how the partitioning changes. Pure.

A lane's checkpoint means: every row *of this lane* before this position is applied. Which rows these are depends on the
number of lanes, on the rules, on which targets use one lane only and on the hash function of the keys. If one of these
changed while lanes are at different positions, rows between the positions would be lost or applied twice (I2). So lanes
with another partitioning first run unchanged up to one barrier. When all are at the same position, their checkpoints
and the record are rewritten in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from google.protobuf import json_format
from pydantic import BeforeValidator, Field, TypeAdapter

from shardmerge.proto import config_pb2, errors
from shardmerge.worker.core.cascades import CascadeKey
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.tables.make_targets import recorded_plans

VERSION = 1
"""Version of the function that maps keys to lanes (worker/core/lane_hash.py); it changes with the function."""

_WITH_CASCADES = "+cascades"
_WITH_FORMER_NAMES = "+renamed"

_NOT_RULES = (
    "source_id",
    "mode",
    "target",
    "start",
    "start_at",
    "stop_at",
    "snapshot",
    "replicate",
    "ignore_checking_items",
    "shard_mode",
)


def _number(version: object) -> object:
    if not isinstance(version, str):
        return version
    return int(version.removesuffix(_WITH_FORMER_NAMES).removesuffix(_WITH_CASCADES))


@dataclass(frozen=True, slots=True)
class LeavingTable:
    """A shard table that is recorded as parked at the statement at ``place``, and whose rows the lanes apply up to
    there. ``one_lane``: see TablePlan. It has no meaning once the table is no longer parked at this place."""

    number: int
    place: StatementPlace
    one_lane: bool


@dataclass(frozen=True, slots=True)
class Growing:
    """A shard table whose structure is recorded as it is after a statement that has added ``columns`` and that the
    lanes may not have reached yet: up to group end ``at``, its rows do not have these columns."""

    number: int
    at: SourcePosition
    columns: tuple[str, ...]

    def is_passed(self, found: Iterable[Checkpoint]) -> bool:
        """Whether lanes with these checkpoints are known to be after the statement."""
        return all(item.position.reaches(self.at) for item in found)


@dataclass(frozen=True, slots=True)
class AwayName:
    """The name, at the main stream's place, of a shard table that another stream has; "" for both parts: the table has
    no name any more. Without such a record, the table has the name of its recorded structure. ``created``: the
    statement that creates the table, if its stream may not have reached it yet; ``owner``: the number of another table
    of that stream. ``dropped``: the main stream is past the statement that drops the table; its stream still has the
    name, for a table that is created there."""

    number: int
    schema: str
    table: str
    created: StatementPlace | None = None
    owner: int | None = None
    dropped: bool = False

    @property
    def name(self) -> TableName | None:
        return (self.schema, self.table) if self.table else None


@dataclass(frozen=True, slots=True)
class FormerName:
    """The target table ``target`` was renamed: its keys have the lanes that they got by its name ``hashed``, until all
    lanes are at one position. Both are quoted; they are equal while it is not known whether the table was renamed."""

    target: str
    hashed: str


@dataclass(frozen=True, slots=True)
class Partitioning:
    """``one_lane``: names of the targets whose keys all belong to one lane. ``shards``: numbers of the shard tables
    that take part; one that once took no part does not return, because its rows were skipped. ``rules``: the rules'
    part of the subtask's configuration as JSON. ``may_lack_rows``: numbers of the shard tables of which the target may
    lack rows now, or could in the past (see TablePlan): new rules do not change which rows the target has.
    ``leaving``: tables that leave the lanes at later places, without a barrier. ``growing``: tables that get columns at
    later places, without a barrier. ``away``: names that statements gave to tables of other streams.
    ``cascades``: the foreign keys whose effect on rows the lanes derive. ``former_names``: of targets that were renamed
    while the lanes were at different positions."""

    lanes: int
    one_lane: frozenset[str]
    shards: frozenset[int]
    rules: str
    version: Annotated[int, BeforeValidator(_number)] = VERSION
    may_lack_rows: Annotated[frozenset[int], Field(alias="loose")] = frozenset()
    leaving: tuple[LeavingTable, ...] = ()
    growing: tuple[Growing, ...] = ()
    away: tuple[AwayName, ...] = ()
    cascades: tuple[CascadeKey, ...] = ()
    former_names: tuple[FormerName, ...] = ()

    def to_json(self) -> str:
        text = _JSON.dump_json(self, by_alias=True).decode()
        # An earlier version of the program, which does not know these, does not read this and stops.
        marks = (_WITH_CASCADES if self.cascades else "") + (_WITH_FORMER_NAMES if self.former_names else "")
        plain = f'"version":{self.version}'
        return text.replace(plain, f'"version":"{self.version}{marks}"', 1) if marks else text

    @staticmethod
    def from_json(text: str) -> Partitioning | None:
        """None for "": nothing has been recorded yet."""
        return _JSON.validate_json(text) if text else None

    def plans(self, source_id: str, tables: tuple[Table, ...]) -> tuple[TablePlan, ...]:
        """The plans of the lanes with this partitioning; needs no server."""
        made = self.plans_of(self.shards, self.compiled_rules(), source_id, tables)
        former = {item.target: item.hashed for item in self.former_names}
        return tuple(
            replace(plan, hash_name=former[plan.target_name]) if plan.target_name in former else plan for plan in made
        )

    def with_renamed(self, before: TargetTable, after: TargetTable, rules: str) -> Partitioning:
        """With the target ``before`` named ``after``, as ``rules`` name it. Each key keeps its lane."""
        hashed = {item.target: item.hashed for item in self.former_names}
        name = hashed.pop(before.quoted, before.quoted)
        one_lane = frozenset(after.quoted if item == before.quoted else item for item in self.one_lane)
        former = (*(FormerName(*item) for item in hashed.items()), FormerName(after.quoted, name))
        return replace(self, rules=rules, one_lane=one_lane, former_names=former)

    def plans_of(
        self, numbers: frozenset[int], rules: Rules, source_id: str, tables: tuple[Table, ...]
    ) -> tuple[TablePlan, ...]:
        """The plans that ``rules`` make of these tables, with the facts of this record; needs no server."""
        return self.apply_may_lack_rows(recorded_plans(rules, source_id, tables, numbers, self.one_lane))

    def apply_may_lack_rows(self, plans: Iterable[TablePlan]) -> tuple[TablePlan, ...]:
        """``plans``, marked where the target may lack rows by this record; a plan that stays as it is, is the same
        object."""
        may_lack_rows = self.may_lack_rows
        return tuple(
            replace(plan, may_lack_rows=True) if plan.shard in may_lack_rows and not plan.may_lack_rows else plan
            for plan in plans
        )

    def keep_one_lane(self, plans: Iterable[TablePlan]) -> tuple[TablePlan, ...]:
        """``plans``, where the targets that have one lane by this record keep it as long as one of their shard tables
        has a further unique key: the target may get the key again while no lane can be changed (``shard-mode:
        optimistic``: another shard table has dropped it and adds it again)."""
        plans = tuple(plans)
        kept = {plan.target_name for plan in plans if plan.target_name in self.one_lane and plan.has_further_key}
        return tuple(
            replace(plan, one_lane=True) if plan.target_name in kept and not plan.one_lane else plan for plan in plans
        )

    def with_tables(self, numbers: Iterable[int]) -> Partitioning:
        """With further shard tables, such as those that are parked at sharding DDLs."""
        return replace(self, shards=self.shards.union(numbers))

    def inherit(self, before: Partitioning | None) -> Partitioning:
        """With the facts of the record ``before`` that stay true under other rules: the tables that may lack rows, also
        those that take no part now but are parked; the tables that leave or get columns; and the names of tables of
        other streams."""
        if before is None:
            return self
        return replace(
            self,
            may_lack_rows=self.may_lack_rows | before.may_lack_rows,
            leaving=before.leaving,
            growing=before.growing,
            away=before.away,
            cascades=before.cascades,
        )

    def leaving_plans(
        self, source_id: str, tables: tuple[Table, ...], places: Mapping[int, StatementPlace]
    ) -> tuple[TablePlan, ...]:
        """The plans of the tables that leave the lanes, by the lanes' rules. ``places``: the statements at which tables
        are parked now."""
        found = {item.number: item for item in self.leaving if places.get(item.number) == item.place}
        made = self.plans_of(frozenset(found), self.compiled_rules(), source_id, tables)
        return tuple(replace(plan, one_lane=found[plan.shard].one_lane) for plan in made)

    def compiled_rules(self) -> Rules:
        return Rules.from_config(self._rules_config())

    @property
    def derives_cascades(self) -> bool:
        """Whether the lanes began with ``cascades: derive``."""
        return self._rules_config().derive_cascades

    def _rules_config(self) -> config_pb2.SubTaskConfig:
        config = config_pb2.SubTaskConfig()
        json_format.Parse(self.rules, config, ignore_unknown_fields=True)
        return config


_JSON = TypeAdapter(Partitioning)


def partitioning_for(config: config_pb2.SubTaskConfig, lanes: int, plans: Iterable[TablePlan]) -> Partitioning:
    """The partitioning that ``config`` requests. ``plans``: of the tables that take part, with the targets' facts."""
    rules = config_pb2.SubTaskConfig()
    rules.CopyFrom(config)
    for name in _NOT_RULES:
        rules.ClearField(name)
    plans = tuple(plans)
    return Partitioning(
        lanes=lanes,
        one_lane=frozenset(plan.target_name for plan in plans if plan.one_lane),
        shards=frozenset(plan.shard for plan in plans),
        rules=json_format.MessageToJson(rules, indent=None, sort_keys=True),
        may_lack_rows=frozenset(plan.shard for plan in plans if plan.may_lack_rows),
    )


def merge_partitionings(own: Partitioning, joined: Partitioning) -> Partitioning:
    """The partitioning of the subtask's lanes once they also have the joined tables."""
    return replace(
        own,
        one_lane=own.one_lane | joined.one_lane,
        shards=own.shards | joined.shards,
        may_lack_rows=own.may_lack_rows | joined.may_lack_rows,
        leaving=tuple(item for item in own.leaving if item.number not in joined.shards),
    )


@dataclass(frozen=True, slots=True)
class Keep:
    """The lanes continue unchanged."""


@dataclass(frozen=True, slots=True)
class Repartition:
    """All lanes are at the checkpoint ``at``: their rows can be repartitioned."""

    at: Checkpoint


@dataclass(frozen=True, slots=True)
class DrainTo:
    """The lanes run unchanged up to ``barrier``, a group end after which none of them has applied anything."""

    barrier: RelayOffset


Step = Keep | Repartition | DrainTo


def next_step(
    found: Sequence[Checkpoint],
    recorded: Partitioning | None,
    wanted: Partitioning,
    source: str,
    end_of_group: Callable[[RelayOffset], RelayOffset],
) -> Step:
    """The next step from the checkpoints ``found``, partitioned as ``recorded``, to the partitioning ``wanted``.

    The offsets of ``found`` are of the current relay log. ``end_of_group``: the end of the group that begins at an
    offset. Raises LANES_MISSING when the checkpoints do not match the record, LANES_MOVED when lanes are at different
    positions and were partitioned by a function that this program does not have.
    """
    if recorded is not None and sorted(item.lane for item in found) != list(range(recorded.lanes)):
        raise errors.replicate.LANES_MISSING(source=source, recorded=recorded.lanes, found=len(found))
    if recorded == wanted:
        return Keep()
    if len({(item.offset, item.skip_events) for item in found}) == 1:
        return Repartition(found[0])
    if recorded is None or recorded.version != wanted.version:
        version = recorded.version if recorded is not None else "none"
        raise errors.replicate.LANES_MOVED(source=source, found=version, wanted=wanted.version)
    return DrainTo(drain_point(found, end_of_group))


def drain_point(found: Iterable[Checkpoint], end_of_group: Callable[[RelayOffset], RelayOffset]) -> RelayOffset:
    """The first group end after which no lane has applied anything."""
    return max(end_of_group(item.offset) if item.skip_events else item.offset for item in found)


def repartitioned(found: Sequence[Checkpoint], at: Checkpoint, lanes: int, epoch: int) -> tuple[Checkpoint, ...]:
    """The checkpoints of ``lanes`` lanes that are all at ``at``.

    Their ``seq`` is higher than every old one: a task of the old lanes that is still running can commit nothing.
    """
    seq = max(item.seq for item in found) + 1
    return tuple(replace(at, lane=lane, epoch=epoch, seq=seq) for lane in range(lanes))
