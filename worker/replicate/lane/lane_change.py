"""How the plans and the scope of lanes change at a barrier.

Only the difference travels: of a thousand shard tables, a statement changes one.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.rules.table_window import TableWindow


@dataclass(frozen=True, slots=True)
class LaterPlan:
    """``plan`` replaces the plan of its shard table from group end ``begin`` on."""

    begin: RelayOffset
    plan: TablePlan


class LaterPlans:
    """Returns the plans that begin to apply, as a lane moves forward in its stream."""

    def __init__(self, later: Iterable[LaterPlan]) -> None:
        self._left = sorted(later, key=lambda item: item.begin, reverse=True)

    def due(self, place: RelayOffset) -> Iterator[TablePlan]:
        """The plans that begin to apply up to group end ``place``, and have not been returned by :meth:`reached`."""
        for item in reversed(self._left):
            if item.begin > place:
                return
            yield item.plan

    def reached(self, place: RelayOffset) -> dict[TableName, TablePlan]:
        """The plans that begin to apply up to group end ``place``, and have not been returned before."""
        found: dict[TableName, TablePlan] = {}
        while self._left and self._left[-1].begin <= place:
            plan = self._left.pop().plan
            found[plan.table.schema, plan.table.name] = plan
        return found


@dataclass(frozen=True, slots=True)
class LanePlans:
    """``plans``: by the shard table's name. ``windows``: of the tables of which the lanes apply only a part.
    ``later``: plans that apply from later places on. ``changes``: how many changes led to them since the lanes' job
    began."""

    plans: Mapping[TableName, TablePlan]
    scope: TableScope
    windows: tuple[TableWindow, ...] = ()
    later: tuple[LaterPlan, ...] = ()
    changes: int = 0

    @staticmethod
    def of(
        plans: Iterable[TablePlan],
        scope: TableScope,
        windows: tuple[TableWindow, ...] = (),
        later: tuple[LaterPlan, ...] = (),
    ) -> LanePlans:
        return LanePlans({(plan.table.schema, plan.table.name): plan for plan in plans}, scope, windows, later)


@dataclass(frozen=True, slots=True)
class LaneChange:
    """The change from the lanes' plans before a barrier to those after it.

    ``number``: of the change, from 1. ``removed``: names without a plan from here on; ``plans``: new and changed ones.
    ``others``, ``only``: names by which these sets of the scope differ; None: ``only`` begins or ceases to be None,
    with ``only_after`` from then on. ``windows``, ``later``: all that apply from here on. ``is_statement``:
    the barrier is a statement, which the lane's checkpoint counts.

    It is sent in a stream's frame, pickled like the lanes' own task: both come from the same driver.
    """

    number: int
    removed: frozenset[TableName]
    plans: tuple[TablePlan, ...]
    others: frozenset[TableName]
    only: frozenset[TableName] | None
    only_after: frozenset[TableName] | None = None
    windows: tuple[TableWindow, ...] = ()
    later: tuple[LaterPlan, ...] = ()
    is_statement: bool = False

    @staticmethod
    def between(
        before: LanePlans,
        plans: Iterable[TablePlan],
        scope: TableScope,
        windows: tuple[TableWindow, ...] = (),
        later: tuple[LaterPlan, ...] = (),
        *,
        is_statement: bool = False,
    ) -> tuple[LaneChange, LanePlans]:
        """The change from ``before`` to these plans, scope (under the same rules), windows and later plans, and the
        plans after it."""
        after = replace(LanePlans.of(plans, scope, windows, later), changes=before.changes + 1)
        one, two = before.scope.only, scope.only
        same_kind = (one is None) == (two is None)
        change = LaneChange(
            after.changes,
            frozenset(before.plans.keys() - after.plans.keys()),
            tuple(plan for name, plan in after.plans.items() if before.plans.get(name) is not plan),
            before.scope.others ^ scope.others,
            (one or frozenset()) ^ (two or frozenset()) if same_kind else None,
            None if same_kind else two,
            windows,
            later,
            is_statement,
        )
        return change, after

    def apply(self, before: LanePlans) -> LanePlans:
        """The plans after the change. Raises ValueError when ``before`` is not what it changes."""
        if before.changes != self.number - 1:
            raise ValueError(f"change {self.number} does not follow change {before.changes}")
        plans = {name: plan for name, plan in before.plans.items() if name not in self.removed}
        plans.update(((plan.table.schema, plan.table.name), plan) for plan in self.plans)
        scope, only = before.scope, before.scope.only
        if self.only is None:
            only = self.only_after
        elif only is not None:
            only ^= self.only
        scope = replace(scope, others=scope.others ^ self.others, only=only)
        return LanePlans(plans, scope, self.windows, self.later, self.number)

    @property
    def names(self) -> frozenset[TableName] | None:
        """The tables for which answers change; None: for all."""
        if self.only is None:
            return None
        changed = ((plan.table.schema, plan.table.name) for plan in self.plans)
        return self.removed.union(changed, self.others, self.only, (window.name for window in self.windows))

    def to_bytes(self) -> bytes:
        return pickle.dumps(self)

    @staticmethod
    def from_bytes(data: bytes) -> LaneChange:
        found = pickle.loads(data)  # noqa: S301 - from the driver whose task the lane runs
        assert isinstance(found, LaneChange)  # noqa: S101 - for the type checker
        return found
