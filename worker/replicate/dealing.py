"""How rows are dealt to lanes, as it is recorded with the lanes' checkpoints, and what a change of it takes. Pure.

A lane's checkpoint says: every row *of this lane* before here is applied. Which rows those are depends on the number
of lanes, on the rules, on which targets keep to one lane and on the function that deals the keys. Were one of these
changed while lanes stand at different places, rows between the places would be lost or applied twice (I2). So lanes
whose rows were dealt otherwise first run, as they were, up to one barrier; where all stand at the same place their
checkpoints and the record are rewritten in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from google.protobuf import json_format
from pydantic import TypeAdapter

from proto import config_pb2, errors
from worker.plan import TablePlan
from worker.plans import recorded_plans
from worker.position import RelayOffset
from worker.replicate.checkpoint import Checkpoint
from worker.rules import Rules
from worker.table import Table

VERSION = 1
"""Of the function that deals keys to lanes (worker/replicate/placement.py): another function is another number."""

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


@dataclass(frozen=True, slots=True)
class Dealing:
    """``one_lane``: names of the targets whose keys all belong to one lane. ``shards``: numbers of the shard tables
    that take part; one that once took none does not come back, for its rows were passed over. ``rules``: the rules'
    part of the subtask's configuration as JSON. ``loose``: numbers of the shard tables that are, or ever were, loose
    (see TablePlan): other rules do not tell what the target holds of them."""

    lanes: int
    one_lane: frozenset[str]
    shards: frozenset[int]
    rules: str
    version: int = VERSION
    loose: frozenset[int] = frozenset()

    def to_json(self) -> str:
        return _JSON.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> Dealing | None:
        """None for "": nothing has been recorded yet."""
        return _JSON.validate_json(text) if text else None

    def plans(self, source_id: str, tables: tuple[Table, ...]) -> tuple[TablePlan, ...]:
        """The plans of the lanes that were dealt so; asks no server."""
        return self.plans_of(self.shards, self.compiled_rules(), source_id, tables)

    def plans_of(
        self, numbers: frozenset[int], rules: Rules, source_id: str, tables: tuple[Table, ...]
    ) -> tuple[TablePlan, ...]:
        """The plans that ``rules`` make of these tables, with the facts of this record; asks no server."""
        return self.still_loose(recorded_plans(rules, source_id, tables, numbers, self.one_lane))

    def still_loose(self, plans: Iterable[TablePlan]) -> tuple[TablePlan, ...]:
        """``plans``, those of tables that were loose before too."""
        return tuple(replace(plan, loose=plan.loose or plan.shard in self.loose) for plan in plans)

    def with_tables(self, numbers: Iterable[int]) -> Dealing:
        """With further shard tables, such as those that wait before sharding DDLs."""
        return replace(self, shards=self.shards.union(numbers))

    def behind(self, before: Dealing | None) -> Dealing:
        """With the tables that were loose before: those that take no part now, but wait, too."""
        return self if before is None else replace(self, loose=self.loose | before.loose)

    def compiled_rules(self) -> Rules:
        config = config_pb2.SubTaskConfig()
        json_format.Parse(self.rules, config, ignore_unknown_fields=True)
        return Rules.from_config(config)


_JSON = TypeAdapter(Dealing)


def dealing_of(config: config_pb2.SubTaskConfig, lanes: int, plans: Iterable[TablePlan]) -> Dealing:
    """As ``config`` wants it; ``plans`` of the tables that take part, with the targets' facts."""
    rules = config_pb2.SubTaskConfig()
    rules.CopyFrom(config)
    for name in _NOT_RULES:
        rules.ClearField(name)
    plans = tuple(plans)
    return Dealing(
        lanes=lanes,
        one_lane=frozenset(plan.target_name for plan in plans if plan.one_lane),
        shards=frozenset(plan.shard for plan in plans),
        rules=json_format.MessageToJson(rules, indent=None, sort_keys=True),
        loose=frozenset(plan.shard for plan in plans if plan.loose),
    )


def merged(own: Dealing, joined: Dealing) -> Dealing:
    """How the subtask's lanes deal rows once the joined tables are theirs too."""
    return replace(
        own,
        one_lane=own.one_lane | joined.one_lane,
        shards=own.shards | joined.shards,
        loose=own.loose | joined.loose,
    )


@dataclass(frozen=True, slots=True)
class Keep:
    """The lanes go on as they are."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """All lanes stand where ``at`` stands: they can be dealt anew."""

    at: Checkpoint


@dataclass(frozen=True, slots=True)
class Meet:
    """The lanes run as they were up to ``barrier``, a group end that none of them has passed."""

    barrier: RelayOffset


Step = Keep | Rewrite | Meet


def next_step(
    found: Sequence[Checkpoint],
    recorded: Dealing | None,
    wanted: Dealing,
    source: str,
    end_of_group: Callable[[RelayOffset], RelayOffset],
) -> Step:
    """What leads from the checkpoints ``found``, dealt as ``recorded``, to lanes as ``wanted``.

    The offsets of ``found`` are of the relay log at hand. ``end_of_group``: of the group that begins at an offset.
    Raises LANES_MISSING when checkpoints are not those of the record, LANES_MOVED when lanes that stand apart were
    dealt by a function that this program does not have.
    """
    if recorded is not None and sorted(item.lane for item in found) != list(range(recorded.lanes)):
        raise errors.replicate.LANES_MISSING(source=source, recorded=recorded.lanes, found=len(found))
    if recorded == wanted:
        return Keep()
    if len({(item.offset, item.skip_events) for item in found}) == 1:
        return Rewrite(found[0])
    if recorded is None or recorded.version != wanted.version:
        version = recorded.version if recorded is not None else "none"
        raise errors.replicate.LANES_MOVED(source=source, found=version, wanted=wanted.version)
    return Meet(meeting_of(found, end_of_group))


def meeting_of(found: Iterable[Checkpoint], end_of_group: Callable[[RelayOffset], RelayOffset]) -> RelayOffset:
    """The first group end that no lane has passed."""
    return max(end_of_group(item.offset) if item.skip_events else item.offset for item in found)


def dealt_anew(found: Sequence[Checkpoint], at: Checkpoint, lanes: int, epoch: int) -> tuple[Checkpoint, ...]:
    """The checkpoints of ``lanes`` lanes that all stand at ``at``.

    Their ``seq`` is beyond every old one: a task of the old lanes that is still about can commit nothing.
    """
    seq = max(item.seq for item in found) + 1
    return tuple(replace(at, lane=lane, epoch=epoch, seq=seq) for lane in range(lanes))
