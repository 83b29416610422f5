"""The context of one run of a subtask: configuration, epoch, rules, connections. Each process unit receives it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from shardmerge.proto import config_pb2, relay_pb2
from shardmerge.proto.config import defaults
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.cancellable_session import cancellable_session
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, coded_errors, connect
from shardmerge.worker.core.position import Located, SourcePosition
from shardmerge.worker.core.spark.run_access import RunAccess
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.core.task_runner import TaskRunner
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.transform.expressions import RunExpressions
from shardmerge.worker.target.members.member_cache import MemberCache
from shardmerge.worker.unit.run_reports import DdlOutcome, ignore, ignore_reader_time, ignore_tables

T = TypeVar("T")

_ANSWER_SECONDS = 60.0


class ChunkDispenser(Protocol):
    """What the snapshot unit offers to its chunk readers, through the task service."""

    def take(self, who: relay_pb2.TaskIdentity, os_pid: int) -> relay_pb2.TakeChunkResponse: ...

    def admit(
        self, who: relay_pb2.TaskIdentity, chunk: relay_pb2.ChunkSpec, position: SourcePosition
    ) -> Located | None:
        """None: the reader must not commit the chunk."""
        ...

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        """True: the reader is to stop."""
        ...


@dataclass(frozen=True, slots=True)
class RunningSnapshot:
    """A running snapshot unit, as its readers reach it.

    ``in_scope``: whether a chunk is read again that was read while a statement ran. ``stop`` ends the readers' streams
    and waits: a child of the unit's own. ``readers``: their number; they are numbered from 0. ``access``: authenticates
    them. ``compiled``: the expressions that they may evaluate.
    """

    task: str
    source: str
    epoch: int
    dispenser: ChunkDispenser
    in_scope: Callable[[Statement], bool]
    stop: StopSignal
    readers: int
    access: RunAccess
    compiled: RunExpressions = field(default_factory=RunExpressions)


class Registry(Protocol):
    """Where the snapshot unit registers its dispenser while it runs."""

    def register_dispenser(self, running: RunningSnapshot) -> None: ...

    def unregister_dispenser(self, task: str, epoch: int) -> None: ...


def who_of(config: config_pb2.SubTaskConfig) -> SubtaskKey:
    return SubtaskKey(config.meta_schema, config.task, config.source_id)


def at_target(config: config_pb2.SubTaskConfig, work: Callable[[Session], T], *, seconds: float = _ANSWER_SECONDS) -> T:
    """Call ``work`` with a new session at the subtask's target; server errors become coded errors.

    ``seconds``: the read timeout of one answer.
    """
    endpoint = Endpoint.from_proto(config.target)
    with (
        closing(connect(endpoint, Side.TARGET, name="target", read_timeout=seconds)) as session,
        coded_errors(endpoint, Side.TARGET, "target"),
    ):
        return work(session)


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run of one subtask: created by worker/daemon/subtask with a new epoch, and given to each unit.

    ``tables``: the structures that the rules let through, as they were when the subtask first
    started (kept in the meta schema), so that a restart decodes old events with the old structure.
    ``members``: the shard tables of all the task's sources.
    ``run_secret``: the secret of this run, see :mod:`shardmerge.worker.core.spark.run_access`.
    ``compiled``: the expressions that the run's tasks may evaluate. Code that gives plans to tasks admits them first.
    ``numbers``: for new shard tables. ``copy_turn``: held while a snapshot copies: one at a time, because its readers
    find it by the run. ``on_ddl``: called with each statement that has been acted on; it never waits.
    ``on_tables``: called with what has become of the copy of some tables, a phrase, their names, and its error.
    ``on_reader_time``: called with a cause and the seconds that the readers of a copy have spent on it; it never waits.
    ``promised_slots``: the slots that the worker's other subtasks need now or in their next phase.
    """

    config: config_pb2.SubTaskConfig
    source: config_pb2.SourceConfig
    epoch: int
    rules: Rules
    tables: tuple[Table, ...]
    source_endpoint: Endpoint
    target_endpoint: Endpoint
    relay: Relay
    task_runner: TaskRunner
    lane_address: str
    registry: Registry
    members: MemberCache
    numbers: TableNumbers
    run_secret: str = field(repr=False)
    compiled: RunExpressions = field(default_factory=RunExpressions)
    copy_turn: threading.Lock = field(default_factory=threading.Lock)
    on_ddl: Callable[[DdlOutcome], None] = ignore
    on_tables: Callable[[str, Sequence[str], ShardmergeError | None], None] = ignore_tables
    on_reader_time: Callable[[str, float], None] = ignore_reader_time
    promised_slots: Callable[[], int] = int

    def free_slots(self) -> int:
        """The slots that tasks may take that need not run all at once: those that are free and not promised."""
        runner = self.task_runner
        return min(runner.free_slots, runner.total_slots - self.promised_slots())

    def lanes_for_joins(self) -> int:
        """How many lanes tables that join now get: those of the task, or fewer if it has fewer slots now, which its own
        lanes keep. They end when the own lanes take the tables over."""
        return max(1, min(self.config.replicate.lanes or defaults.LANES, self.free_slots()))

    @property
    def access(self) -> RunAccess:
        """What authenticates the run's Spark tasks."""
        return RunAccess(self.run_secret, self.source_endpoint, self.target_endpoint)

    @property
    def who(self) -> SubtaskKey:
        """See :func:`who_of`."""
        return who_of(self.config)

    def at_source(self, stop: StopSignal) -> AbstractContextManager[Session]:
        """A session at the source, which ``stop`` closes; server errors in the block become coded errors."""
        return cancellable_session(stop, self.source_endpoint, Side.SOURCE, name=self.source.source_id)

    def at_target(self, work: Callable[[Session], T], *, seconds: float = _ANSWER_SECONDS) -> T:
        """Call ``work`` with a new session at the target; server errors become coded errors.

        ``seconds``: the read timeout of one answer.
        """
        endpoint = self.target_endpoint
        with (
            closing(connect(endpoint, Side.TARGET, name="target", read_timeout=seconds)) as session,
            coded_errors(endpoint, Side.TARGET, "target"),
        ):
            return work(session)
