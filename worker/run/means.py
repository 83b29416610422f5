"""What one run of a subtask has at hand, whatever its phase."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from proto import config_pb2
from proto.config import defaults
from proto.state_pb2 import BinlogOp
from worker import meta
from worker.connection import Endpoint, Session, Side, coding, connect
from worker.context import SubTaskContext, who_of
from worker.host import Host
from worker.meta import SubTaskRow
from worker.rules import Rules
from worker.run_access import new_secret
from worker.table import Table
from worker.unit import Outcome, ProcessUnit, StopSignal

_ANSWER_SECONDS = 300.0


class Owner(Protocol):
    """Who hears how the run goes on."""

    def epoch_acquired(self, epoch: int) -> None: ...

    def phase_known(self, *, fresh: bool) -> None:
        """``fresh``: nothing has begun, so nothing of the relay log is needed."""
        ...

    def unit_begins(self, unit: ProcessUnit) -> None: ...

    def binlog_ops(self) -> tuple[BinlogOp, ...]:
        """What an operator has said about statements of the source's binlog."""
        ...

    def works_beside(self, doing: Callable[[], str]) -> None:
        """``doing``: what the run does beside its unit, one phrase, "" for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """Of one run: its configuration, its surroundings, and sessions at both ends."""

    config: config_pb2.SubTaskConfig
    update_token: str
    host: Host
    owner: Owner
    source_endpoint: Endpoint
    target_endpoint: Endpoint
    run_secret: str = field(repr=False)

    @staticmethod
    def of(config: config_pb2.SubTaskConfig, update_token: str, host: Host, owner: Owner) -> Means:
        """Raises what an endpoint raises whose password cannot be read."""
        source = Endpoint.from_proto(getattr(host.source, "from"))
        return Means(config, update_token, host, owner, source, Endpoint.from_proto(config.target), new_secret())

    @property
    def source_id(self) -> str:
        return self.host.source.source_id

    @property
    def who(self) -> tuple[str, str, str]:
        """See :func:`worker.context.who_of`."""
        return who_of(self.config)

    @property
    def lanes(self) -> int:
        """How many the configuration wants."""
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

    def coding_target(self) -> AbstractContextManager[None]:
        """The block's server errors leave as coded errors of the target."""
        return coding(self.target_endpoint, Side.TARGET, "target")

    def coding_source(self) -> AbstractContextManager[None]:
        """The block's server errors leave as coded errors of the source."""
        return coding(self.source_endpoint, Side.SOURCE, self.source_id)

    @contextmanager
    def at_target(self) -> Generator[Session]:
        """A session at the target for the block; its server errors leave as coded errors."""
        with ExitStack() as sessions, self.coding_target():
            yield self.target(sessions)

    def row(self) -> SubTaskRow:
        """The subtask's record at the target, as of now."""
        with self.at_target() as target:
            row = meta.read_row(target, *self.who)
        assert row is not None  # noqa: S101 - for the type checker: it was taken over
        return row

    def context(self, rules: Rules, epoch: int, tables: tuple[Table, ...]) -> SubTaskContext:
        """What a unit of this run works with."""
        host = self.host
        return SubTaskContext(
            config=self.config,
            source=host.source,
            epoch=epoch,
            rules=rules,
            tables=tables,
            source_endpoint=self.source_endpoint,
            target_endpoint=self.target_endpoint,
            relay=host.relay,
            spark=host.spark,
            lane_address=host.lane_address,
            registry=host.service,
            run_secret=self.run_secret,
        )

    def run_unit(self, unit: ProcessUnit, stop: StopSignal) -> Outcome:
        self.owner.unit_begins(unit)
        return unit.run(stop)
