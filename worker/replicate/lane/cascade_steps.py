"""Splits a lane's changes into steps, so that derived changes are made between the right ones. Pure.

A step is a batch and, after it, the changes of parents whose effect on other tables is derived. A change of a table
that they may reach begins the next step. All steps that wait are committed in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from shardmerge.worker.binlog.events import causes_unlogged_cascades
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.cascades import CascadeKey, CascadeKeys, lane_groups
from shardmerge.worker.core.lane_hash import Bucket, lane_of
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules.stage.row_stage import needs_stage
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.target.apply.cascades import Cascades, ParentChange, parent_changes


@dataclass(frozen=True, slots=True)
class CascadeStep:
    """First ``batch``, then what ``changes`` cause by ``cascades``."""

    batch: Batch
    cascades: Cascades
    changes: tuple[ParentChange, ...]


class CascadeSteps:
    """The steps of one lane. ``keys``: the subtask's; ``plans``: of all its tables."""

    def __init__(
        self, keys: tuple[CascadeKey, ...], plans: Iterable[TablePlan], bucket: Bucket, handover: Handover | None
    ) -> None:
        plans = tuple(plans)
        self._keys = CascadeKeys(keys)
        self._bucket = bucket
        self._copied = {} if handover is None else handover.copied_until()
        targets = {plan.shard: plan.target_name for plan in plans if plan.shard in self._keys.tables}
        self._groups: Mapping[str, str] = lane_groups(targets, keys)
        self._plans: Mapping[int, TablePlan] = {}
        self._ordered: set[int] = set()
        self.use(plans)
        self._reaches = {number: self._keys.descendants(number) for number in self._keys.tables}
        self._steps: list[CascadeStep] = []
        self._changes: list[ParentChange] = []
        self._touched: set[int] = set()

    def use(self, plans: Iterable[TablePlan]) -> None:
        """Use these plans of the subtask's tables from here on. Waiting steps keep theirs.

        Also of tables that have no event in the stream: a change of a parent reaches them all the same.
        """
        self._plans = {plan.shard: plan for plan in plans if plan.shard in self._keys.tables}

    def prepared(self, plan: TablePlan, decoded_by: Callable[[TablePlan], TablePlan]) -> TablePlan:
        """The plan by which rows of the table are decoded here. ``decoded_by``: returns it for a table whose rows go
        through the row stage, or of which nothing is derived.

        All tables of a group have one lane, and this lane gets their changes in order if it is theirs. No filter and no
        transform applies to a table with cascading keys (:func:`shardmerge.worker.rules.cascades.find_cascades`): the
        decoder maps its rows, also if another shard table of its target has such rules.
        """
        self._ordered.discard(plan.shard)
        group = self._groups.get(plan.target_name)
        if group is None:
            return decoded_by(plan)
        made = replace(plan, lane_group=group)
        if needs_stage(plan):
            return decoded_by(made)
        if lane_of(made, (), self._bucket.lanes) == self._bucket.lane:
            made = replace(made, staged=True)
            self._ordered.add(plan.shard)
        return made

    def orders(self, plan: TablePlan) -> bool:
        """Whether the changes of the table's rows come to :meth:`add`."""
        return plan.shard in self._ordered

    @property
    def rows(self) -> int:
        """How many rows wait in finished steps, and how many changes of parents."""
        return sum(step.batch.rows + len(step.changes) for step in self._steps) + len(self._changes)

    @property
    def size(self) -> int:
        """How many bytes wait in finished steps."""
        return sum(step.batch.size for step in self._steps)

    def add(
        self, change: RowChange, events: bytes, place: RelayOffset, batch: Batch, renew: Callable[[], Batch]
    ) -> Batch:
        """Note ``change``, which the event at ``place`` has, before it is added to the batch; returns the batch to
        which it belongs: ``batch``, or a new one, which ``renew`` makes."""
        shard = change.plan.shard
        if shard in self._touched:
            self._end_step(batch)
            batch = renew()
        keys = self._keys.of_parent.get(shard, ())
        if keys and change.before and causes_unlogged_cascades(events, change.byte):
            later = frozenset(number for number in self._reaches[shard] if place < self._copied.get(number, place))
            for found in parent_changes(keys, change.plan, change.before, change.after, later):
                self._changes.append(found)
                self._touched |= self._reaches[found.key.child]
        return batch

    def take(self, batch: Batch, renew: Callable[[], Batch]) -> tuple[tuple[CascadeStep, ...], Batch]:
        """All steps that wait, ``batch`` included, and a new batch; no step, and ``batch``, if nothing is derived."""
        if not self._steps and not self._changes:
            return (), batch
        self._end_step(batch)
        found, self._steps = tuple(self._steps), []
        return found, renew()

    def _end_step(self, batch: Batch) -> None:
        self._steps.append(CascadeStep(batch, Cascades(self._keys, self._plans), tuple(self._changes)))
        self._changes = []
        self._touched = set()
