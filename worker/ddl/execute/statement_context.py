"""The context of the work on one statement, and how its statements run at the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.mysql.cancellable_session import cancellable_session
from shardmerge.worker.core.mysql.connection import Session, Side
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.statement_changes import StatementChanges
from shardmerge.worker.ddl.execute.run_once import OneRun, run_once
from shardmerge.worker.ddl.sql.statement import Ddl
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.records.statement_session import StatementSession
from shardmerge.worker.unit.run_context import RunContext


@dataclass(frozen=True, slots=True)
class StatementContext:
    """``session``: at the target; ``stop`` closes it. ``source_session``: the statement's session settings.
    ``changes``: collects what the statement changes. ``on_wait``: called with what it waits for, "" for nothing.
    ``removed_shards``: numbers of the shard tables that the statement removes. ``ddl``: None when an operator's
    override replaces it."""

    run_context: RunContext
    statement: Statement
    ddl: Ddl | None
    source_session: StatementSession
    session: Session
    changes: StatementChanges
    stop: StopSignal
    on_wait: Callable[[str], None]
    removed_shards: frozenset[int]

    @property
    def who(self) -> SubtaskKey:
        return self.run_context.who

    @property
    def epoch(self) -> int:
        return self.run_context.epoch

    @property
    def sql_mode(self) -> int:
        """The sql_mode under which the statement is to be parsed."""
        return self.statement.sql_mode or 0

    @property
    def plans(self) -> dict[int, TablePlan]:
        """The subtask's shard tables with the statement's changes so far, by number."""
        return self.changes.plans

    def at_source(self) -> AbstractContextManager[Session]:
        """See :meth:`RunContext.at_source`."""
        return self.run_context.at_source(self.stop)

    def run(
        self,
        targets: Sequence[TargetTable],
        text: str,
        *,
        subject: str = "",
        prepare: Callable[[Session], None] = lambda _: None,
    ) -> None:
        """See :class:`shardmerge.worker.ddl.execute.run_once.OneRun`."""
        position = self.statement.position
        one = OneRun(targets, text, self.source_session, subject, position, at=self.statement, prepare=prepare)
        self.changes.executed.subjects.add(one.lock_name)
        # A separate session: it holds a lock until it ends.
        with cancellable_session(
            self.stop, self.run_context.target_endpoint, Side.TARGET, name="target", read_timeout=None
        ) as session:
            run_once(session, self.who, self.epoch, one, self.stop, self.on_wait)

    @property
    def place(self) -> str:
        """Where the stream is, for a message."""
        return f"before the statement at {self.statement.position}"

    def refusal(self, spec: ErrorSpec, **more: object) -> ShardmergeError:
        _, task, source = self.who
        return spec(
            source=source,
            task=task,
            position=self.statement.position,
            statement=" ".join(self.statement.text.split()),
            **more,
        )
