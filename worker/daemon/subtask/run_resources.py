"""What one run of a subtask uses in every phase: configuration, endpoints, sessions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from shardmerge.proto import config_pb2
from shardmerge.proto.config import defaults
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, coded_errors, connect
from shardmerge.worker.core.spark.run_access import new_secret
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stored_override import StoredOverride
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.daemon.subtask.source_context import SourceContext
from shardmerge.worker.daemon.task_history import SubTaskHistory
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.members.member_cache import MemberCache
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.subtask_record import SubTaskRow
from shardmerge.worker.unit.contract import Outcome, ProcessUnit
from shardmerge.worker.unit.run_context import RunContext, who_of

_ANSWER_SECONDS = 300.0


class RunObserver(Protocol):
    """Is notified of a run's progress; the subtask implements it."""

    def epoch_acquired(self, epoch: int) -> None: ...

    def phase_known(self, *, fresh: bool) -> None:
        """``fresh``: nothing has begun, so nothing of the relay log is needed."""
        ...

    def unit_begins(self, unit: ProcessUnit) -> None: ...

    def binlog_ops(self) -> tuple[StoredOverride, ...]:
        """The operator's overrides for statements of the source's binlog."""
        ...

    def reader_time(self, cause: str, seconds: float) -> None:
        """The readers of a copy have spent ``seconds`` on ``cause``; it never waits."""
        ...

    def background_activity(self, activity: Callable[[], str]) -> None:
        """``activity``: what the run does in parallel with its unit, one phrase, "" for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class RunResources:
    """The resources of one run: its configuration, its source's context, and sessions at both ends."""

    config: config_pb2.SubTaskConfig
    update_token: str
    host: SourceContext
    owner: RunObserver
    source_endpoint: Endpoint
    target_endpoint: Endpoint
    run_secret: str = field(repr=False)

    @staticmethod
    def open(
        config: config_pb2.SubTaskConfig, update_token: str, host: SourceContext, owner: RunObserver
    ) -> RunResources:
        """Raises what an endpoint raises whose password cannot be read."""
        source = Endpoint.from_proto(getattr(host.source, "from"))
        return RunResources(config, update_token, host, owner, source, Endpoint.from_proto(config.target), new_secret())

    @property
    def source_id(self) -> str:
        return self.host.source.source_id

    @property
    def who(self) -> SubtaskKey:
        """See :func:`shardmerge.worker.unit.run_context.who_of`."""
        return who_of(self.config)

    @property
    def lanes(self) -> int:
        """The configured number of lanes."""
        return self.config.replicate.lanes or defaults.LANES

    def target(self, sessions: ExitStack) -> Session:
        """A session at the target, closed with ``sessions``."""
        session = connect(self.target_endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)
        sessions.callback(session.close)
        return session

    def source(self, sessions: ExitStack) -> Session:
        """A session at the source, closed with ``sessions``."""
        session = connect(self.source_endpoint, Side.SOURCE, name=self.source_id, read_timeout=_ANSWER_SECONDS)
        sessions.callback(session.close)
        return session

    def coded_target_errors(self) -> AbstractContextManager[None]:
        """The block's server errors become coded errors of the target."""
        return coded_errors(self.target_endpoint, Side.TARGET, "target")

    def coded_source_errors(self) -> AbstractContextManager[None]:
        """The block's server errors become coded errors of the source."""
        return coded_errors(self.source_endpoint, Side.SOURCE, self.source_id)

    @contextmanager
    def at_target(self) -> Generator[Session]:
        """A session at the target for the block; its server errors become coded errors."""
        with ExitStack() as sessions, self.coded_target_errors():
            yield self.target(sessions)

    def row(self) -> SubTaskRow:
        """The subtask's record at the target, as of now."""
        with self.at_target() as target:
            row = subtask_record.read_row(target, self.who)
        assert row is not None  # noqa: S101 - for the type checker: it was taken over
        return row

    def context(self, rules: Rules, epoch: int, tables: tuple[Table, ...]) -> RunContext:
        """The context of a unit of this run."""
        host = self.host
        history = SubTaskHistory(host.history, self.config.task, self.source_id)
        return RunContext(
            config=self.config,
            source=host.source,
            epoch=epoch,
            rules=rules,
            tables=tables,
            source_endpoint=self.source_endpoint,
            target_endpoint=self.target_endpoint,
            relay=host.relay,
            task_runner=host.task_runner,
            lane_address=host.lane_address,
            registry=host.service,
            members=MemberCache(self.config.meta_schema, self.config.task),
            numbers=TableNumbers(len(tables)),
            run_secret=self.run_secret,
            on_ddl=lambda outcome: history.ddl(outcome, epoch),
            on_tables=lambda what, tables, error: history.tables(what, tables, error, epoch),
            on_reader_time=self.owner.reader_time,
            promised_slots=lambda: host.promised_slots(self.config.task),
        )

    def run_unit(self, unit: ProcessUnit, stop: StopSignal) -> Outcome:
        self.owner.unit_begins(unit)
        return unit.run(stop)
