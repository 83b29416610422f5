"""Shard tables whose sharding DDL lies behind them, and that are to join their subtask's own lanes again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from worker import meta
from worker.connection import Session
from worker.context import SubTaskContext
from worker.ddl.agent import ShardAgent
from worker.ddl.operator import Ops
from worker.ddl.waiting import WaitingTables
from worker.join.join import TableJoin, joining_plans
from worker.join.replay import begin_replay
from worker.lane_service import LaneService
from worker.position import RelayOffset, SourcePosition
from worker.replicate.dealing import Dealing
from worker.replicate.meeting import Meeting
from worker.table import Table


@dataclass(frozen=True, slots=True)
class ReleasedTables:
    """See :class:`worker.join.unit.Coming`."""

    context: SubTaskContext
    service: LaneService
    source_position: Callable[[], SourcePosition]
    meeting: Meeting
    waiting: WaitingTables
    agent: ShardAgent
    ops: Ops

    def next(self) -> TableJoin | None:
        """All that are released by now."""
        released = self.waiting.released()
        if not released:
            return None
        tables, loose = self.context.at_target(self._recorded)
        context = replace(self.context, tables=tables)
        plans = joining_plans(context, frozenset(released))
        one_lane = frozenset(plan.target_name for plan in plans if plan.one_lane)
        joining = begin_replay(context, released, one_lane, loose & released.keys())
        return TableJoin(context, self.service, self.source_position, joining, self.meeting, self.waiting, self.ops)

    def _recorded(self, session: Session) -> tuple[tuple[Table, ...], frozenset[int]]:
        """The subtask's structures, and numbers of the tables that are or were loose."""
        row = meta.read_row(session, *self.context.who)
        dealing = Dealing.from_json(row.dealing) if row is not None else None
        return meta.read_tables(session, *self.context.who), dealing.loose if dealing is not None else frozenset()

    def taken(self, join: TableJoin) -> None:
        self.waiting.take(join.numbers)

    def lowest(self) -> RelayOffset | None:
        return self.waiting.lowest()

    def doing(self) -> str:
        return self.agent.doing()

    def waits(self) -> bool:
        return self.waiting.lowest() is not None
