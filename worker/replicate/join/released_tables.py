"""Supplies shard tables whose sharding DDL has run, or the rest of whose history is copied, so that they join their
subtask's own lanes again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardmerge.proto import worker_pb2
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table import Table
from shardmerge.worker.ddl.locks.lock_agent import LockAgent
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
from shardmerge.worker.ddl.park_again import ParkAgain
from shardmerge.worker.replicate.join.replay import begin_replay, replayed_together
from shardmerge.worker.replicate.join.rest_of_copy import RestOfCopy
from shardmerge.worker.replicate.join.table_join import SharedByJoins, TableJoin, joining_plans
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.partitioning import Partitioning
from shardmerge.worker.unit.run_context import RunContext


@dataclass(frozen=True, slots=True)
class ReleasedTables:
    """A :class:`shardmerge.worker.replicate.join.unit.TableSource` of the parked tables that are released. ``agent``:
    of a subtask that takes part in sharding-DDL locks. ``again``: parks tables that would not get further than to their
    next statements."""

    context: RunContext
    shared: SharedByJoins
    parked: ParkedQueue
    agent: LockAgent | None
    rest: RestOfCopy
    again: ParkAgain

    def next(self) -> TableJoin | None:
        """All tables that are released by now, except those that are parked again at their next statements. Raises the
        lock agent's error."""
        self.check()
        released = replayed_together(self.parked.released())
        if not released:
            return None
        tables, may_lack_rows = self.context.at_target(self._recorded)
        context = replace(self.context, tables=tables)
        plans = joining_plans(context, frozenset(released))
        if self.shared.end is None:  # a statement after the end must not be executed
            parked = self.again.park(released, tables, plans)
            released = {number: each for number, each in released.items() if number not in parked}
            plans = tuple(plan for plan in plans if plan.shard in released)
            if not released:
                return None
        one_lane = frozenset(plan.target_name for plan in plans if plan.one_lane)
        joining = begin_replay(context, released, one_lane, may_lack_rows.intersection(released))
        return TableJoin(context, joining, self.shared)

    def wait(self, seconds: float) -> None:
        self.parked.wait_released(seconds)

    def check(self) -> None:
        failure = self.agent.failure() if self.agent is not None else None
        if failure is not None:
            raise failure

    def _recorded(self, session: Session) -> tuple[tuple[Table, ...], frozenset[int]]:
        """The subtask's structures, and the numbers of the tables that may lack rows."""
        row = subtask_record.read_row(session, self.context.who)
        partitioning = Partitioning.from_json(row.partitioning) if row is not None else None
        tables = subtask_record.read_tables(session, self.context.who)
        return tables, partitioning.may_lack_rows if partitioning is not None else frozenset()

    def confirm_taken(self, join: TableJoin) -> None:
        self.parked.remove(join.numbers)

    def lowest(self) -> RelayOffset | None:
        return self.parked.lowest()

    def activity(self) -> str:
        return self.agent.activity() if self.agent is not None else ""

    def copy_status(self) -> tuple[worker_pb2.JoinStatus, ...]:
        return self.rest.status()

    def has_more(self) -> bool:
        return self.parked.lowest() is not None

    def retry(self) -> None:
        self.rest.retry()
