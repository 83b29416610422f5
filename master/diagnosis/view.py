"""What is known about one source of a task: records, and the figures of its worker. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from shardmerge.proto import common_pb2, config_pb2, diagnose_pb2, worker_pb2
from shardmerge.proto.common_pb2 import ErrorDetail

LANE_CAUSES = ("start", "idle", "read", "gather", "decode", "target", "retry", "barrier")
"""What a lane's time is spent on; see LaneCounters in proto/relay.proto."""

_LEAST_KNOWN = 0.5
"""Share of the measured time that a lane must have reported for its shares to count."""


@dataclass(frozen=True, slots=True)
class SourceView:
    """``failure``: why there is no ``answer``. ``is_paused``: the records have it paused. ``relay_paused``: by
    pause-relay."""

    task: str
    source: str
    worker: str = ""
    failure: ErrorDetail | None = None
    answer: worker_pb2.WorkerDiagnoseResponse | None = None
    config: config_pb2.SubTaskConfig = field(default_factory=config_pb2.SubTaskConfig)
    is_paused: bool = False
    is_disabled: bool = False
    is_bound: bool = True
    relay_paused: bool = False

    @property
    def task_word(self) -> str:
        """The task's name in a command: a name may hold blanks and quotes."""
        return shlex.quote(self.task)

    @property
    def source_word(self) -> str:
        return shlex.quote(self.source)

    @property
    def status(self) -> worker_pb2.SubTaskStatus | None:
        """The subtask's; None: the worker does not have it."""
        return None if self.answer is None else next(iter(self.answer.status.subtasks), None)

    @property
    def relay(self) -> worker_pb2.RelayStatus | None:
        known = self.answer is not None and self.answer.status.HasField("relay")
        return self.answer.status.relay if self.answer is not None and known else None

    @property
    def use(self) -> diagnose_pb2.SubTaskUse:
        return diagnose_pb2.SubTaskUse() if self.answer is None else self.answer.use

    @property
    def is_replicating(self) -> bool:
        status = self.status
        return status is not None and status.stage == common_pb2.STAGE_RUNNING and status.WhichOneof("status") == "sync"

    @property
    def is_copying(self) -> bool:
        status = self.status
        return status is not None and status.stage == common_pb2.STAGE_RUNNING and status.WhichOneof("status") == "load"

    @property
    def lanes(self) -> tuple[LaneView, ...]:
        """The lanes of which it is known what they have done."""
        return tuple(lane for lane in self._lanes() if lane.total >= _LEAST_KNOWN * self.use.seconds)

    def _lanes(self) -> Iterator[LaneView]:
        status = self.status
        shown = {lane.lane: lane for lane in status.sync.lanes} if status is not None else {}
        for use in self.use.lanes:
            yield LaneView(use, shown.get(use.lane, worker_pb2.LaneStatus(lane=use.lane)))

    def share(self, *causes: str) -> float:
        """The share of the lanes' time, 0 to 1."""
        lanes = self.lanes
        total = sum(lane.total for lane in lanes)
        return sum(lane.seconds(*causes) for lane in lanes) / total if total else 0.0

    @property
    def lag(self) -> float | None:
        """Lag in seconds; None: not known."""
        status = self.status
        if status is None or not self.is_replicating or status.sync.unknown:
            return None
        if not status.sync.oldest_ms and not status.sync.bytes_behind and not self.changes:
            return 0.0  # the lag of the last transaction, some seconds ago, is no longer the present one
        return max(status.sync.oldest_ms, status.sync.lag_ms) / 1000

    @property
    def commit_seconds(self) -> float | None:
        """The mean of the commits that have ended; None: none has."""
        transactions = self.transactions
        return sum(lane.use.commit_seconds for lane in self.lanes) / transactions if transactions else None

    @property
    def round_trip(self) -> float | None:
        """To the target, in seconds; None: not known."""
        target = self.use.target
        return target.round_trip if target.HasField("round_trip") else None

    @property
    def transactions(self) -> int:
        """Commits that have ended, of lanes of which it is known what they have done."""
        return sum(lane.use.transactions for lane in self.lanes)

    @property
    def changes(self) -> int:
        """Of the commits that have ended."""
        return sum(lane.use.changes for lane in self.lanes)

    @property
    def changes_per_second(self) -> float:
        return self.changes / self.use.seconds if self.use.seconds else 0.0


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane: what it has done, and what it does now."""

    use: diagnose_pb2.LaneUse
    status: worker_pb2.LaneStatus

    @property
    def number(self) -> int:
        return self.use.lane

    def seconds(self, *causes: str) -> float:
        return sum(self.use.seconds[cause] for cause in causes if cause in self.use.seconds)

    @property
    def total(self) -> float:
        return sum(self.use.seconds.values())

    def share(self, *causes: str) -> float:
        return self.seconds(*causes) / self.total if self.total else 0.0
