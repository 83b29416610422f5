"""What acting on one statement works with, and how its statements run at the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from proto.errors import ErrorSpec, ShardmergeError
from worker.connection import Session, Side
from worker.context import SubTaskContext
from worker.cutoff import session_until
from worker.ddl.execute import Who, run_once, subject_of
from worker.ddl.passing import Passing
from worker.ddl.session import StatementSession
from worker.ddl.statement import Ddl
from worker.plan import TablePlan, TargetTable
from worker.relay.model import Statement
from worker.unit import StopSignal


@dataclass(frozen=True, slots=True)
class Work:
    """``session``: at the target, cut off by ``stop``. ``tell``: hears what is waited for. ``going``: numbers of the
    shard tables that the statement takes away. ``ddl``: None for one that is an operator's to answer for."""

    context: SubTaskContext
    statement: Statement
    ddl: Ddl | None
    given: StatementSession
    session: Session
    passing: Passing
    stop: StopSignal
    tell: Callable[[str], None]
    going: frozenset[int]

    @property
    def who(self) -> Who:
        return self.context.who

    @property
    def epoch(self) -> int:
        return self.context.epoch

    @property
    def sql_mode(self) -> int:
        """Under which the statement is to be read."""
        return self.statement.sql_mode or 0

    @property
    def plans(self) -> dict[int, TablePlan]:
        """The subtask's shard tables as far as the statement has come, by number."""
        found = {**self.passing.standing.plans, **self.passing.plans}
        return {number: plan for number, plan in found.items() if number not in self.passing.gone}

    def at_source(self) -> AbstractContextManager[Session]:
        """See :meth:`SubTaskContext.at_source`."""
        return self.context.at_source(self.stop)

    def run(
        self,
        targets: Sequence[TargetTable],
        text: str,
        *,
        subject: str = "",
        prepare: Callable[[Session], None] = lambda _: None,
    ) -> None:
        """See :func:`worker.ddl.execute.run_once`."""
        subject = subject or subject_of(targets)
        self.passing.subjects.add(subject)
        # A session of its own: it holds a lock while it lives.
        with session_until(
            self.stop, self.context.target_endpoint, Side.TARGET, name="target", read_timeout=None
        ) as session:
            run_once(
                session,
                self.who,
                self.epoch,
                targets,
                text,
                self.given,
                self.stop,
                self.tell,
                subject,
                prepare,
                self.statement.position,
            )

    def refusal(self, spec: ErrorSpec, **more: object) -> ShardmergeError:
        _, task, source = self.who
        return spec(
            source=source,
            task=task,
            position=self.statement.position,
            statement=" ".join(self.statement.text.split()),
            **more,
        )
