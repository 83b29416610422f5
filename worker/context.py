"""What one run of a unit works with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from proto import config_pb2, relay_pb2
from worker.connection import Endpoint, Session, Side, coding, connect
from worker.cutoff import session_until
from worker.relay.model import Statement
from worker.relay.relay import Relay
from worker.rules import Rules
from worker.run_access import RunAccess
from worker.spark import SparkRunner
from worker.table import Table
from worker.transform.expressions import Compiled
from worker.unit import StopSignal

T = TypeVar("T")

_ANSWER_SECONDS = 60.0


class ChunkDispenser(Protocol):
    """What the snapshot unit offers to its chunk readers, through the lane service."""

    def take(self, who: relay_pb2.TaskIdentity, os_pid: int) -> relay_pb2.TakeChunkResponse: ...

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        """True: the reader is to stop."""
        ...


@dataclass(frozen=True, slots=True)
class RunningSnapshot:
    """A snapshot unit at work, as its readers reach it.

    ``in_scope``: the statements that a chunk's fix-up cannot play and must not pass over; it raises what they stop the
    copy with. ``stop`` ends the readers' streams and waits: a child of the unit's own. ``readers``: how many there are,
    numbered from 0. ``access``: authenticates them. ``compiled``: the expressions that they may evaluate.
    """

    task: str
    source: str
    epoch: int
    dispenser: ChunkDispenser
    in_scope: Callable[[Statement], bool]
    stop: StopSignal
    readers: int
    access: RunAccess
    compiled: Compiled = field(default_factory=Compiled)


class Registry(Protocol):
    """Where the snapshot unit registers its dispenser while it runs."""

    def register_dispenser(self, running: RunningSnapshot) -> None: ...

    def unregister_dispenser(self, task: str, epoch: int) -> None: ...


def who_of(config: config_pb2.SubTaskConfig) -> tuple[str, str, str]:
    """Whose records at the target: (meta schema, task, source)."""
    return config.meta_schema, config.task, config.source_id


def at_target(config: config_pb2.SubTaskConfig, work: Callable[[Session], T], *, seconds: float = _ANSWER_SECONDS) -> T:
    """``work`` in a session of its own at the subtask's target; its server errors leave as coded errors.

    ``seconds``: how long one answer may take.
    """
    endpoint = Endpoint.from_proto(config.target)
    with (
        closing(connect(endpoint, Side.TARGET, name="target", read_timeout=seconds)) as session,
        coding(endpoint, Side.TARGET, "target"),
    ):
        return work(session)


@dataclass(frozen=True, slots=True)
class SubTaskContext:
    """One run of one subtask: made by worker/run with a fresh epoch, handed to each unit.

    ``tables``: the structures that the rules let through, as they were when the subtask first
    started (kept in the meta schema), so that a restart decodes old events with the old structure.
    ``run_secret``: the secret of this run, see :mod:`worker.run_access`.
    ``compiled``: the expressions that the run's tasks may evaluate. Code that gives plans to tasks admits them first.
    """

    config: config_pb2.SubTaskConfig
    source: config_pb2.SourceConfig
    epoch: int
    rules: Rules
    tables: tuple[Table, ...]
    source_endpoint: Endpoint
    target_endpoint: Endpoint
    relay: Relay
    spark: SparkRunner
    lane_address: str
    registry: Registry
    run_secret: str = field(repr=False)
    compiled: Compiled = field(default_factory=Compiled)

    @property
    def access(self) -> RunAccess:
        """What authenticates the run's Spark tasks."""
        return RunAccess(self.run_secret, self.source_endpoint, self.target_endpoint)

    @property
    def who(self) -> tuple[str, str, str]:
        """See :func:`who_of`."""
        return who_of(self.config)

    def at_source(self, stop: StopSignal) -> AbstractContextManager[Session]:
        """A session at the source, which ``stop`` cuts off; the block's server errors leave as coded errors."""
        return session_until(stop, self.source_endpoint, Side.SOURCE, name=self.source.source_id)

    def at_target(self, work: Callable[[Session], T], *, seconds: float = _ANSWER_SECONDS) -> T:
        """``work`` in a session of its own at the target; its server errors leave as coded errors.

        ``seconds``: how long one answer may take.
        """
        endpoint = self.target_endpoint
        with (
            closing(connect(endpoint, Side.TARGET, name="target", read_timeout=seconds)) as session,
            coding(endpoint, Side.TARGET, "target"),
        ):
            return work(session)
