"""A shard table that comes to a target that is there (``shard-mode: optimistic``): the target takes its columns.

Each shard table's structure is an input of the join also when the task starts and when a table is made meanwhile. The
target stands for all other shard tables here: what it has stays, what the newcomer has besides or wider comes to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proto.log import get_logger
from worker.connection import Session
from worker.create_table import UnreadableCreateTable
from worker.ddl import records
from worker.ddl.creation import Creation, read_creation
from worker.ddl.described import described
from worker.ddl.digests import Printed
from worker.ddl.execute import Who, alone, run_once, subject_of
from worker.ddl.joined import Joined, join
from worker.ddl.optimistic import STRICT, join_subject
from worker.ddl.shards import NotJoinable, Shard
from worker.ddl.tracker import open_tracker
from worker.plan import TablePlan
from worker.target_table import find_target
from worker.unit import StopSignal

log = get_logger()


@dataclass(frozen=True, slots=True)
class Widening:
    """``session``: at the target, in no transaction."""

    session: Session
    who: Who
    epoch: int
    stop: StopSignal

    def __call__(self, plan: TablePlan, creation: Creation) -> None:
        """What cannot be joined is left as it is: whoever checks the target next says what does not fit.

        Raises FENCED, DDL_REFUSED and ``pymysql.MySQLError``.
        """
        session, who, target = self.session, self.who, plan.target
        with alone(session, who, self.epoch, join_subject(target), self.stop, lambda _: None) as held:
            if not held or find_target(session, plan) is None:
                return
            try:
                answer = self._answer(plan, creation)
            except UnreadableCreateTable as error:
                answer = NotJoinable(str(error))
            if isinstance(answer, NotJoinable):
                log.warning(
                    "the target cannot take a shard table's columns",
                    task=who[1],
                    source=who[2],
                    table=plan.table.full_name,
                    reason=answer.reason,
                )
                return
            if answer.clauses:
                text = f"ALTER TABLE {target.quoted} {', '.join(answer.clauses)}"
                run_once(session, who, self.epoch, [target], text, STRICT, self.stop, lambda _: None)
            if not self.stop.is_set:
                session.begin()
                records.forget_begun(session, *who, subject_of([target]))
                session.commit()

    def _answer(self, plan: TablePlan, creation: Creation) -> Joined | NotJoinable:
        tracker = open_tracker(self.session, self.who, "widening", self.epoch)
        # Of the columns alone: rows fit whatever the indexes are, and those of a target just made may come later.
        own = replace(described(Printed().creation(plan.table, creation, tracker)), indexes=())
        target = replace(described(read_creation(self.session, *plan.target.names)), indexes=())
        before = Shard(plan.table.full_name, replace(own, columns=target.columns))
        return join(target, [Shard("the target", target)], before, own, strict=True)
