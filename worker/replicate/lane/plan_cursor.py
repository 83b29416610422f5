"""The plans that apply at a place of a lane's stream.

A lane picks its rows by them. For lanes on other machines the worker finds by them which events a lane needs
(worker/replicate/lane_shares.py): both must have the same answer at each place.
"""

from __future__ import annotations

from collections.abc import Callable

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.replicate.lane.lane_change import LanePlans, LaterPlans
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.rules.table_window import WindowCursor


class PlanCursor:
    """Moves forward with a stream. ``current``: what the last barrier has set; ``plans``: those at the present place,
    by the shard table's name; ``windows``, ``later``: the edges that follow."""

    def __init__(self, plans: LanePlans) -> None:
        self.use(plans)

    def use(self, plans: LanePlans) -> None:
        """Continue with other plans, after a barrier."""
        self.current = plans
        self.plans = dict(plans.plans)
        self.windows, self.later = WindowCursor(plans.windows), LaterPlans(plans.later)

    def pass_edges(self, start: RelayOffset) -> tuple[frozenset[TableName], bool]:
        """Open and close the windows that begin or end up to ``start``, and use the plans that begin to apply. A block
        never extends over such a place. Returns the tables whose answers change, and whether plans are among it."""
        changed = self.windows.advance(start)
        later = self.later.reached(start)
        self.plans.update(later)
        return changed.union(later), bool(later)

    def plan_of(self, schema: str, table: str, unknown: Callable[[], ShardmergeError]) -> TablePlan | None:
        """The plan of a source table; None: its rows are not of this stream. Raises ``unknown()`` for a table of the
        stream that has no plan."""
        if not self.windows.is_open((schema, table)):
            return None
        plan = self.plans.get((schema, table))
        if plan is None and self.current.scope.holds(schema, table):
            raise unknown()
        return plan
