"""A subtask's life at the worker: its state, the current run, automatic resume.

    New ──▶ Starting ──▶ Running ──▶ Ended
                 ▲           │
                 └── Paused ◀┘    it starts again after a newer decision, or after a pause if the error is retryable

    each ──▶ RemovedSubtask       its record is gone, or the worker ends

One thread per subtask makes every transition; others only set what is expected and wake it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from shardmerge.proto import common_pb2 as pb
from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.proto.config.secrets.sealed import same_meaning
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import Backoff
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.tracing.operation import Operation, within
from shardmerge.proto.tracing.spans import TraceSpan, begin_span
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stored_override import StoredOverride
from shardmerge.worker.daemon import task_history as causes
from shardmerge.worker.daemon.metrics.figures import CompareFigures, SubTaskFigures
from shardmerge.worker.daemon.metrics.run_counts import RunCounts
from shardmerge.worker.daemon.subtask.relay_hold import HoldAll, HoldFrom, HoldNothing, RelayHold
from shardmerge.worker.daemon.subtask.run import SubTaskRun
from shardmerge.worker.daemon.subtask.run_config import MOST_BATCH_DIVISOR, with_smaller_batches
from shardmerge.worker.daemon.subtask.source_context import SourceContext
from shardmerge.worker.daemon.task_history import SubTaskHistory
from shardmerge.worker.replicate.join.unit import JoiningUnit
from shardmerge.worker.replicate.lane_totals import SubTaskTotals
from shardmerge.worker.replicate.status import without_progress
from shardmerge.worker.replicate.unit import ReplicateUnit
from shardmerge.worker.snapshot.limits.reader_times import ReaderTotal
from shardmerge.worker.snapshot.unit import SnapshotUnit
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, ProcessUnit, Stopped
from shardmerge.worker.verify.precheck.estimates import slots_of

log = get_logger()

_REFUSED_STATEMENTS = (errors.ddl.DDL_REFUSED, errors.ddl.DDL_PART_REFUSED)
_BACKOFF = Backoff(1.0, 60.0)
_SLOTS_MISSING = (errors.worker.SPARK_NO_EXECUTOR, errors.worker.SPARK_SLOTS_MISSING, errors.worker.NO_SLOTS)
_BACKOFF_SLOTS = Backoff(1.0, 5.0)  # such a run fails at once; a later one succeeds once there are slots
_LOOK_AGAIN_SECONDS = 1.0
_LEAST_PAUSE_SECONDS = 0.05
_BACKOFF_RESET_SECONDS = 300.0
_LANES_LOST = (errors.worker.SPARK_TASK_LOST, errors.worker.LANE_STOPPED, errors.worker.STREAM_LOST)
_BACKOFF_RESET_LOST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class New:
    stage = pb.STAGE_NEW


@dataclass(frozen=True, slots=True)
class Starting:
    """A run has begun, which has no unit yet. ``error``: the one that has ended the run before it."""

    error: ShardmergeError | None
    stage = pb.STAGE_RUNNING


@dataclass(frozen=True, slots=True)
class Running:
    """A run that has a unit."""

    stage = pb.STAGE_RUNNING


@dataclass(frozen=True, slots=True)
class Paused:
    """``error``: the one that has ended the last run; None: it was stopped. ``retry_at``: when the next run begins by
    itself (``time.monotonic``); None: never."""

    error: ShardmergeError | None = None
    retry_at: float | None = None
    stage = pb.STAGE_PAUSED


@dataclass(frozen=True, slots=True)
class Ended:
    """The last run has done all that there was to do."""

    stage = pb.STAGE_FINISHED


@dataclass(frozen=True, slots=True)
class RemovedSubtask:
    """Its record does not exist any more, or the worker ends."""

    stage = pb.STAGE_STOPPED


State = New | Starting | Running | Paused | Ended | RemovedSubtask

_STEPS: dict[type[State], tuple[type[State], ...]] = {
    New: (Starting, Paused, RemovedSubtask),
    Starting: (Running, Paused, Ended, RemovedSubtask),
    Running: (Running, Paused, Ended, RemovedSubtask),
    Paused: (Starting, RemovedSubtask),
    Ended: (Starting, RemovedSubtask),
    RemovedSubtask: (),
}


def may_become(now: State, then: State) -> bool:
    """Whether a subtask's state may change from ``now`` to ``then``; see the drawing above."""
    return type(then) in _STEPS[type(now)]


@dataclass(frozen=True, slots=True)
class Decision:
    """The master's record of the subtask, as of its ``revision``. ``binlog_ops``: overrides for statements.
    ``operation``: the last command that changed the task."""

    config: config_pb2.SubTaskConfig
    expected: pb.Stage
    meta_token: str
    update_token: str
    revision: int
    binlog_ops: tuple[StoredOverride, ...] = ()
    operation: Operation | None = None


def _same_config(one: config_pb2.SubTaskConfig, other: config_pb2.SubTaskConfig) -> bool:
    """Whether both configurations mean the same. A secret that cannot be decrypted counts as a different one: then the
    subtask starts again, and its status shows the reason."""
    try:
        return same_meaning(one, other)
    except ShardmergeError:
        return False


def _same_request(one: Decision, other: Decision) -> bool:
    return (one.expected, one.binlog_ops) == (other.expected, other.binlog_ops)


def _why_idle(stage: pb.Stage, error: ShardmergeError | None) -> str:
    if error is not None:
        return f"error {error.spec.code} {error.spec.name} has stopped it"
    return "it is paused" if stage == pb.STAGE_PAUSED else "it is stopped"


def _own_lanes(unit: ProcessUnit | None) -> ReplicateUnit | None:
    """The unit of the subtask's own lanes; None while it copies."""
    if isinstance(unit, JoiningUnit):
        unit = unit.own_lanes
    return unit if isinstance(unit, ReplicateUnit) else None


def _pause_seconds(error: ShardmergeError, failures: int) -> float:
    """The pause before the next run. ``failures``: how many runs have failed before this one."""
    if not failures and error.spec in _LANES_LOST:
        return 0.0  # a process has ended, and all other lanes wait for the next run
    return (_BACKOFF_SLOTS if error.spec in _SLOTS_MISSING else _BACKOFF).seconds(failures + 1)


class SubTask:
    """Owns one subtask at this worker. Public methods are thread-safe."""

    def __init__(self, decision: Decision, host: SourceContext, run_allowed: Callable[[], bool]) -> None:
        self._host = host
        self._decision = decision
        self._run_allowed = run_allowed
        self._condition = threading.Condition()
        self._state: State = New()
        self._unit: ProcessUnit | None = None  # of the last run that has had one
        self._background_activity: Callable[[], str] = str
        self._epoch = 0
        self._fresh = False
        self._stop = StopSignal()
        self._ending = False
        self._held = 0
        self._tried_revision = 0
        self._begun_revision = 0
        self._ops_before = decision.binlog_ops
        self._failures = 0
        self._counts = RunCounts()
        self._copied: worker_pb2.LoadStatus | None = None  # the history's progress when its unit had ended
        self._readers = ReaderTotal()
        self._progress_due_since = self._run_began = time.monotonic()
        self._batch_divisor = 1
        self._starting: TraceSpan | None = None
        self._log = log.bind(task=decision.config.task, source=host.source.source_id)
        self._history = SubTaskHistory(host.history, decision.config.task, host.source.source_id)
        self._end_cause = causes.REMOVED
        self._thread = threading.Thread(target=self._run_all, name=f"subtask-{decision.config.task}", daemon=True)
        self._thread.start()

    # --- calls of other threads

    @property
    def name(self) -> str:
        return self._decision.config.task

    def decide(self, decision: Decision) -> None:
        """Carry out the record as it was read last; a known one changes nothing.

        Its revision may be lower than that of the one before: etcd has lost data (an older snapshot was restored).
        """
        with self._condition:
            old = self._decision
            if decision.revision == old.revision:
                if replace(decision, operation=old.operation) == old:
                    return
                self._tried_revision = 0  # etcd has lost data, and has given the number to another record
            self._decision = decision
            same = (decision.meta_token, decision.update_token) == (
                old.meta_token,
                old.update_token,
            ) and _same_config(decision.config, old.config)
            if decision.expected != pb.STAGE_RUNNING or not same:
                # Another configuration or token: an update, or a stop and a start that were seen as one change.
                self._stop.set()
            elif self._state.stage == pb.STAGE_RUNNING and not self._stop.is_set:
                self._tried_revision = decision.revision  # the current run is what is wanted
                if isinstance(self._unit, JoiningUnit) and isinstance(self._state, Running):
                    self._unit.retry()
            elif (
                decision.config != old.config and self._tried_revision == old.revision and _same_request(decision, old)
            ):
                # Only the form of its secrets has changed: that is no request to retry after a failure.
                self._tried_revision = decision.revision
            self._condition.notify_all()

    def interrupt(self) -> None:
        """End the current run (the lease is lost); it starts again when runs are allowed again."""
        with self._condition:
            self._stop.set()
            self._condition.notify_all()

    def wake(self) -> None:
        """Check again whether a run is allowed."""
        with self._condition:
            self._condition.notify_all()

    def end(self, cause: str = causes.REMOVED) -> None:
        """Begin to stop permanently. ``cause``: for the history."""
        with self._condition:
            if not self._ending:
                self._end_cause = cause
            self._ending = True
            self._stop.set()
            self._condition.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait until :meth:`end` is complete; False when ``seconds`` were not enough."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def converged(self) -> bool:
        """Whether the newest decision is carried out: a run has begun, or the last one is over."""
        with self._condition:
            if self._ending:
                return isinstance(self._state, RemovedSubtask)
            if self._decision.expected == pb.STAGE_RUNNING:
                return self._tried_revision == self._decision.revision
            return isinstance(self._state, Paused | Ended)

    def promised_slots(self) -> int:
        """The Spark slots that it has or is about to take at least, without tables that join it later."""
        if self._decision.expected != pb.STAGE_RUNNING or isinstance(self._state, Ended):
            return 0
        slots = slots_of(self._decision.config)
        return slots.least if self.replicating() is None else slots.following

    @property
    def config(self) -> config_pb2.SubTaskConfig:
        """The configuration of the newest decision."""
        return self._decision.config

    @contextmanager
    def while_paused(self) -> Generator[str]:
        """During the block no run is in progress or begins; yields the meta token of the next run. Raises
        SCHEMA_RUNNING, also if a run is about to begin automatically."""
        with self._condition:
            state = self._state
            failed = isinstance(state, Paused) and state.error is not None and state.retry_at is None
            over = self._tried_revision == self._decision.revision and failed
            paused = self._decision.expected != pb.STAGE_RUNNING
            if self._ending or not isinstance(state, Paused | Ended) or not (paused or over):
                raise errors.ddl.SCHEMA_RUNNING(task=self.name, source=self._host.source.source_id)
            self._held += 1
        try:
            yield self._decision.meta_token
        finally:
            with self._condition:
                self._held -= 1
                self._condition.notify_all()

    def replicating(self) -> ReplicateUnit | None:
        """The running unit's own lanes. They do not apply the tables that are parked or joining."""
        with self._condition:
            unit = self._unit if isinstance(self._state, Running) and not self._stop.is_set else None
        if isinstance(unit, JoiningUnit):
            unit = unit.own_lanes
        return unit if isinstance(unit, ReplicateUnit) else None

    def copying(self) -> SnapshotUnit | None:
        """The running unit that copies the subtask's history; None: it does not copy one."""
        with self._condition:
            unit = self._unit if isinstance(self._state, Running) and not self._stop.is_set else None
        return unit if isinstance(unit, SnapshotUnit) else None

    def relay_hold(self) -> RelayHold:
        """What the subtask may still read of the relay log (I7)."""
        with self._condition:
            state, unit, fresh = self._state, self._unit, self._fresh
        if isinstance(state, Ended) or fresh:
            return HoldNothing()
        lowest = unit.lowest() if isinstance(unit, ReplicateUnit | JoiningUnit) else None
        return HoldAll() if lowest is None else HoldFrom(lowest)

    def status(self) -> worker_pb2.SubTaskStatus:
        """Never Running without a valid lease: another worker may run it before this process, which was suspended, has
        read that or has stopped its run."""
        may_run = self._run_allowed()
        with self._condition:
            state, epoch = self._state, self._epoch
            stage = state.stage if state.stage != pb.STAGE_RUNNING or may_run else pb.STAGE_PAUSED
            # The status of the previous run's unit does not apply to a run that is starting.
            unit = None if isinstance(state, Starting) and may_run else self._unit
            background, retry_at = self._background_activity, self._resumes_at()
        error = state.error if isinstance(state, Paused) else None
        status = worker_pb2.SubTaskStatus(name=self.name, stage=stage, epoch=epoch)
        if error is not None:
            status.result.errors.append(error_to_proto(error))
        if stage == pb.STAGE_PAUSED and error is None:
            status.result.is_canceled = True
        if retry_at is not None:
            status.waiting_for = f"automatic resume in {max(0.0, retry_at - time.monotonic()):.0f} s"
        elif not may_run and self._decision.expected == pb.STAGE_RUNNING:
            status.waiting_for = "the worker's lease in etcd, which has ended: another worker may run it"
        elif isinstance(state, Starting) and may_run and state.error is not None:
            # A start may take long at a server that is in trouble, and looks like no error.
            status.waiting_for = f"the start of its next run; the last one ended with {state.error}"
        match None if unit is None else unit.status():
            case worker_pb2.LoadStatus() as load:
                status.unit = pb.UNIT_SNAPSHOT
                status.load.CopyFrom(load)
            case worker_pb2.SyncStatus() as sync:
                status.unit = pb.UNIT_REPLICATE
                if stage in (pb.STAGE_PAUSED, pb.STAGE_STOPPED):
                    sync = without_progress(sync, _why_idle(stage, error))
                status.sync.CopyFrom(sync)
            case None:
                pass
        if unit is not None and stage == pb.STAGE_RUNNING:
            status.waiting_for = "; ".join(phrase for phrase in (unit.activity(), background()) if phrase)
            if isinstance(unit, JoiningUnit):
                joining, copies = unit.join_status(), unit.copy_status()
                status.copies.extend(copies)
                joining = joining if joining is not None else next(iter(copies), None)
                if joining is not None:
                    status.join.CopyFrom(joining)
        return status

    def figures(self, totals: SubTaskTotals, compared: CompareFigures) -> SubTaskFigures:
        """For metrics. ``totals``: of its lanes. Like :meth:`status` it never waits for a server."""
        status = self.status()
        with self._condition:
            lanes = _own_lanes(self._unit)
            unit = self._unit if isinstance(self._state, Running) else None
            runs, copied, retry_at = self._counts.figures(), self._copied, self._resumes_at()
            failures = 0 if self._has_recovered() else self._failures
            is_paused = self._decision.expected == pb.STAGE_PAUSED
        if isinstance(unit, JoiningUnit):
            unit = unit.own_lanes
        now = time.monotonic()
        _, locks = self._host.shards.locks(self.name, 0, 0.0)
        return SubTaskFigures(
            status,
            totals,
            runs,
            copied,
            now - self._progress_due_since,
            failures,
            None if retry_at is None else max(0.0, retry_at - now),
            unit.seconds_since_chunk() if isinstance(unit, SnapshotUnit) else None,
            unit.remaining_seconds() if isinstance(unit, ReplicateUnit) else None,
            bool(locks),
            compared,
            self._readers.read(),
            is_paused,
            None if lanes is None else lanes.applied_seconds(),
        )

    def _resumes_at(self) -> float | None:
        """When the next run begins by itself; None: it does not, also because an operator has paused the subtask."""
        state = self._state
        return state.retry_at if isinstance(state, Paused) and self._decision.expected == pb.STAGE_RUNNING else None

    def _has_recovered(self) -> bool:
        """Whether the present run has lasted so long that its end would begin the pauses anew."""
        lasts = time.monotonic() - self._run_began
        return self._state.stage == pb.STAGE_RUNNING and lasts > _BACKOFF_RESET_SECONDS

    # --- its own thread

    def _run_all(self) -> None:
        while self._await_run():
            started = self._run_began
            with within(self._decision.operation):
                outcome = self._run()
            if time.monotonic() - started > self._reset_seconds(outcome):
                self._failures = 0
            # A newer command may have ended the run.
            with within(self._decision.operation):
                self._conclude(outcome)
        with self._condition:
            self._history.decided()
            self._become(RemovedSubtask(), self._end_cause)

    def _reset_seconds(self, outcome: Outcome) -> float:
        """A run that lasted longer than this begins the pauses anew. Executors may be lost one after the other, for
        example while a cluster is upgraded; each of them is a failure of its own."""
        is_lost = (
            isinstance(outcome, Failed) and outcome.error.spec in _LANES_LOST and not self._host.task_runner.is_local
        )
        return _BACKOFF_RESET_LOST_SECONDS if is_lost else _BACKOFF_RESET_SECONDS

    def _await_run(self) -> bool:
        """Wait until a run is due; False when the subtask has to end."""
        with self._condition:
            while True:
                if self._ending:
                    return False
                decision = self._decision
                if decision.expected == pb.STAGE_PAUSED and isinstance(self._state, New):
                    self._become(Paused(), causes.AS_DECIDED)
                if not self._held and self._is_due(decision):
                    cause = self._cause_of_run(decision)
                    self._tried_revision = self._begun_revision = decision.revision
                    self._ops_before = decision.binlog_ops
                    self._stop = StopSignal()
                    self._run_began = time.monotonic()
                    if cause != causes.AUTOMATIC:
                        self._progress_due_since = time.monotonic()
                    self._become(Starting(self._last_error()), cause)
                    return True
                self._condition.wait(self._wait_seconds())

    def _cause_of_run(self, decision: Decision) -> str:
        """Why a run that is due begins, for the history."""
        if decision.revision != self._tried_revision:
            self._history.decided()
            return causes.AS_DECIDED
        return causes.LEASE_BACK if self._last_error() is None else causes.AUTOMATIC

    def _last_error(self) -> ShardmergeError | None:
        """The error that has ended the last run."""
        return self._state.error if isinstance(self._state, Paused) else None

    def _wait_seconds(self) -> float | None:
        """How long to wait for a notification: until the retry, or shortly while the lease may return unnoticed."""
        if self._held:
            return None
        if self._decision.expected == pb.STAGE_RUNNING and not self._run_allowed():
            return _LOOK_AGAIN_SECONDS
        # Not for a subtask that is paused: it would wake up again and again, with nothing to do.
        at = self._resumes_at()
        return None if at is None else max(_LEAST_PAUSE_SECONDS, at - time.monotonic())

    def _is_due(self, decision: Decision) -> bool:
        if decision.expected != pb.STAGE_RUNNING or not self._run_allowed():
            return False
        if decision.revision != self._tried_revision:
            return True
        match self._state:
            case Paused(error=error, retry_at=at) if error is not None:
                return at is not None and time.monotonic() >= at
            case state:
                return not isinstance(state, Ended)

    def _run(self) -> Outcome:
        decision = self._decision
        self._starting = begin_span("subtask start", task=self.name, source=self._host.source.source_id)
        try:
            config = with_smaller_batches(decision.config, self._batch_divisor)
            run = SubTaskRun(config, decision.meta_token, decision.update_token, self._host, self)
            return run.run(self._stop)
        except ShardmergeError as error:  # of an endpoint whose password cannot be read
            return Failed(error)
        except Exception as error:  # noqa: BLE001 - a bug pauses its subtask, not the worker
            self._log.exception("unexpected error in a run")
            return Failed(errors.worker.INTERNAL(kind=type(error).__name__, where=f"task {self.name}", reason=error))

    # --- calls of the run

    def binlog_ops(self) -> tuple[StoredOverride, ...]:
        """The present ones: the master may have written them since the run began."""
        return self._decision.binlog_ops

    def unit_begins(self, unit: ProcessUnit) -> None:
        with self._condition:
            before = self._unit
        copied = before.status() if isinstance(before, SnapshotUnit) else None
        lanes, lanes_before = _own_lanes(unit), _own_lanes(before)
        if lanes is not None and lanes_before is not None:
            lanes.applied_through = lanes_before.applied_through
        with self._condition:
            self._unit = unit
            self._become(Running())
            starting, self._starting = self._starting, None
            if isinstance(copied, worker_pb2.LoadStatus):
                self._copied = copied
                if not isinstance(unit, SnapshotUnit):
                    self._history.replicates(self._epoch)
        if starting is not None:
            starting.end()

    def reader_time(self, cause: str, seconds: float) -> None:
        self._readers.add(cause, seconds)

    def background_activity(self, activity: Callable[[], str]) -> None:
        with self._condition:
            self._background_activity = activity

    def epoch_acquired(self, epoch: int) -> None:
        with self._condition:
            self._epoch = epoch
            self._background_activity = str
        self._log.info("epoch acquired", epoch=epoch)

    def phase_known(self, *, fresh: bool) -> None:
        """``fresh``: nothing of the relay log is needed, because nothing has begun."""
        with self._condition:
            self._fresh = fresh

    def _conclude(self, outcome: Outcome) -> None:
        if self._starting is not None:
            self._starting.end(outcome.error if isinstance(outcome, Failed) else None)
            self._starting = None
        with self._condition:
            self._counts.ended(
                outcome, in_snapshot=isinstance(self._state, Running) and isinstance(self._unit, SnapshotUnit)
            )
            match outcome:
                case Finished():
                    self._become(Ended())
                case Stopped():
                    if not self._ending:
                        self._become(Paused(), self._cause_of_stop())
                case Failed(error=error):
                    self._become(Paused(error, self._retry_after(error)))
                    if error.spec is errors.replicate.TARGET_TRANSACTION_TOO_LARGE:
                        self._batch_divisor = min(self._batch_divisor * 4, MOST_BATCH_DIVISOR)

    def _retry_after(self, error: ShardmergeError) -> float | None:
        """When the next run begins by itself after a run that ``error`` has ended; None: never."""
        if error.spec.retryable:
            pause = _pause_seconds(error, self._failures)
            self._failures += 1
            self._log.warning("run failed, will resume", error=str(error), seconds=pause)
            return time.monotonic() + pause
        self._log.error("run failed", error=str(error), workaround=error.workaround)
        # An operator's override of the statement, or unlock of its lock, arrived while it ran, maybe too late for it.
        overridden = self._decision.binlog_ops != self._ops_before
        unlocked = error.spec in _REFUSED_STATEMENTS and self._tried_revision != self._begun_revision
        return time.monotonic() if overridden or unlocked else None

    def _cause_of_stop(self) -> str:
        """Why a run was stopped, for the history."""
        if self._decision.expected != pb.STAGE_RUNNING:
            return causes.AS_DECIDED
        return causes.AGAIN if self._decision.revision != self._tried_revision else causes.LEASE_LOST

    def _become(self, state: State, cause: str = "") -> None:
        """``cause``: for the history."""
        before = self._state
        if not may_become(before, state):
            raise errors.worker.INTERNAL(
                kind="change of state", where=f"task {self.name}", reason=f"{before} to {state}"
            )
        if state.stage != before.stage:
            with within(self._decision.operation):
                self._report(before.stage, state, cause)
        self._state = state
        self._condition.notify_all()

    def _report(self, before: pb.Stage, state: State, cause: str) -> None:
        self._log.info("stage", was=pb.Stage.Name(before), now=pb.Stage.Name(state.stage))
        error = state.error if isinstance(state, Paused) else None
        if error is None:
            self._history.stage(before, state.stage, cause, self._epoch)
        else:
            self._history.failed(before, error, self._epoch, retries=error.spec.retryable)
