"""Runs everything for the source that the worker is bound to: relay, clock, subtasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shardmerge.proto import config_pb2, diagnose_pb2, errors, worker_pb2
from shardmerge.proto.config.secrets.sealed import same_meaning
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.task_history.event import History
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
)
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.task_runner import TaskRunner
from shardmerge.worker.daemon.commands.binlog_schema import operate_schema
from shardmerge.worker.daemon.commands.move_source import check_switch
from shardmerge.worker.daemon.diagnosis.sample import CopySample, RelaySample, SubTaskSample, overview
from shardmerge.worker.daemon.forecast.figures import SourceForecast
from shardmerge.worker.daemon.forecast.source_watch import SourceWatch
from shardmerge.worker.daemon.metrics.figures import CompareFigures, SourceFigures
from shardmerge.worker.daemon.source.caught_up import CaughtUp
from shardmerge.worker.daemon.source.server_id_lease import ServerIdLease
from shardmerge.worker.daemon.source.source_check import SourceCheck
from shardmerge.worker.daemon.subtask.relay_hold import HoldAll, HoldFrom, HoldNothing, lowest_hold
from shardmerge.worker.daemon.subtask.source_context import SourceContext
from shardmerge.worker.daemon.subtask.subtask import Decision, SubTask
from shardmerge.worker.daemon.task_history import RELEASED, RelayHistory
from shardmerge.worker.daemon.task_service import TaskService
from shardmerge.worker.ddl.locks.lock_client import LockClient
from shardmerge.worker.ddl.locks.lock_run import target_of
from shardmerge.worker.relay.clock_offset import ClockOffset
from shardmerge.worker.relay.model import PurgePolicy
from shardmerge.worker.relay.purge_policy import HeldBecause, Purged, kept_because
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.source_clock import PollingClock
from shardmerge.worker.unit.contract import Epochs

log = get_logger()

_CLOCK_SECONDS = 1.0
_CLOCK_ANSWER_SECONDS = 10.0
_EVERYTHING = RelayOffset(0, 0)


@dataclass(frozen=True, slots=True)
class OfWorker:
    """What a worker gives to the runner of its source. ``run_allowed``: whether the worker's registration lives."""

    task_runner: TaskRunner
    service: TaskService
    lane_address: str
    epochs: Epochs
    run_allowed: Callable[[], bool]
    shards: LockClient
    history: History


class SourceRunner:
    """Owns the source's relay and subtasks. Only the daemon's reconcile thread calls it, except :meth:`status` and
    :meth:`interrupt`."""

    def __init__(
        self,
        config: config_pb2.SourceConfig,
        relay_directory: Path,
        server_id: ServerIdLease,
        worker: OfWorker,
        *,
        relay_paused: bool,
    ) -> None:
        self.config = config
        endpoint = Endpoint.from_proto(getattr(config, "from"))
        self.relay = Relay(
            relay_directory,
            config.source_id,
            endpoint,
            config.flavor,
            server_id,
            PurgePolicy.from_proto(config.purge),
            clock_offset=ClockOffset(),
        )
        self._server_id = server_id
        self._subtasks: dict[str, SubTask] = {}
        self._ending: list[SubTask] = []
        self._lock = threading.Lock()
        self._run_allowed = worker.run_allowed
        self._caught_up = CaughtUp()
        self._reconciled = False  # before that, subtasks may exist that are not known here
        self._clock = PollingClock(endpoint, config.source_id, self.relay.clock_offset)
        self._host = SourceContext(
            config,
            self.relay,
            self._clock,
            worker.epochs,
            worker.task_runner,
            worker.service,
            worker.lane_address,
            self._needed_by_others,
            worker.shards,
            worker.history,
            self.promised_slots,
        )
        self._relay_history = RelayHistory(worker.history, config.source_id)
        self._check: SourceCheck | None = None
        self.relay.set_needed(self._needed)
        self.relay.pause(paused=relay_paused)
        self.relay.start()
        self._watch = SourceWatch(self.relay, self._clock, self.task_configs)
        self._watch.start()

    def adopt(self, config: config_pb2.SourceConfig) -> bool:
        """Take over another configuration; False when it needs a restart. Filters are part of the subtasks'
        configurations. A secret may be stored in another form and still be the same secret. Raises what
        :func:`shardmerge.proto.config.secrets.sealed.same_meaning` raises."""
        same = config_pb2.SourceConfig()
        same.CopyFrom(config)
        same.purge.CopyFrom(self.config.purge)
        del same.filters[:]
        same.filters.extend(self.config.filters)
        if not same_meaning(same, self.config):
            return False
        self.config.CopyFrom(config)
        self.relay.set_purge(PurgePolicy.from_proto(config.purge))
        return True

    def check_switch(self, request: worker_pb2.CheckSwitchRequest) -> worker_pb2.CheckSwitchResponse:
        """See :func:`shardmerge.worker.daemon.commands.move_source.check_switch`."""
        return check_switch(self.relay, request.source, request.subtasks)

    def relay_needs(self) -> worker_pb2.RelayNeedsResponse:
        """The position from which the subtasks may need the relay log; its beginning while one of them is unknown.

        Complete: what they need is known, and the log reaches the source's end of an earlier call.
        """
        answer = worker_pb2.RelayNeedsResponse()
        needed = self._needed()
        caught_up = self._caught_up.has(self.relay.head().position, self._clock.position())
        answer.complete = needed is None or (needed != _EVERYTHING and caught_up)
        if needed is not None and self.relay.relay_id:
            first = self.relay.first()
            place = first.position if needed <= first.offset else self.relay.position_at(needed)
            answer.needed.CopyFrom(place.to_proto())
        return answer

    def reconcile(self, decisions: dict[str, Decision]) -> None:
        """Bring the subtasks to the state of the records: start new ones, pass on decisions, end those without one."""
        with self._lock:
            known = dict(self._subtasks)
        if not decisions and not self._reconciled:
            begin_relay(self.relay, self.config)
            self._check = SourceCheck(self.config)
        elif decisions and self._check is not None:
            self._check.stop()
            self._check = None
        for task, decision in decisions.items():
            subtask = known.get(task)
            if subtask is not None:
                subtask.decide(decision)
                continue
            # A task stopped and started again at once: the old run must be over first.
            self._join_ended(task, 60.0)
            self._host.service.totals.begin(task, self.config.source_id)
            with self._lock:
                self._subtasks[task] = SubTask(decision, self._host, self._run_allowed)
        for task, subtask in known.items():
            if task not in decisions:
                subtask.end()
                self._host.service.totals.forget(task, self.config.source_id)
                with self._lock:
                    del self._subtasks[task]
                    self._ending.append(subtask)
        with self._lock:
            self._ending = [subtask for subtask in self._ending if not subtask.join(0)]
        self._reconciled = True
        self._relay_history.observe(self.relay.status().error, list(decisions))

    def _join_ended(self, task: str, seconds: float) -> None:
        for subtask in self._ending:
            if subtask.name == task:
                subtask.join(seconds)

    def subtask(self, task: str) -> SubTask | None:
        with self._lock:
            return self._subtasks.get(task)

    def interrupt(self) -> None:
        """Stop every run now (lease lost); subtasks start again when runs are allowed."""
        for subtask in self._all():
            subtask.interrupt()

    def wake(self) -> None:
        """The worker is registered again: interrupted subtasks continue."""
        self._server_id.renew()
        for subtask in self._all():
            subtask.wake()

    def stop(self, seconds: float) -> bool:
        """End all subtasks within the budget, then the relay. False when a subtask did not end in time."""
        check = self._check
        if check is not None:
            check.stop()
        everyone = [*self._all(), *self._ending]
        for subtask in everyone:
            subtask.end(RELEASED)
        late = [subtask for subtask in everyone if not subtask.join(seconds)]
        self._watch.stop()
        self._clock.stop()
        self.relay.stop()
        self._server_id.release()
        for subtask in everyone:
            self._host.service.totals.forget(subtask.name, self.config.source_id)
        return not late

    def converged(self) -> bool:
        """Whether every subtask has carried out its newest decision."""
        return all(subtask.converged for subtask in self._present())

    def source_error(self) -> ShardmergeError | None:
        """What the checks of a source without tasks have found; None: nothing."""
        check = self._check
        return None if check is None else check.error

    def status(self, task: str) -> tuple[worker_pb2.RelayStatus, list[worker_pb2.SubTaskStatus]]:
        """The relay's status and those of the subtasks (of ``task`` only, unless it is "")."""
        return self._relay_status(), [subtask.status() for subtask in self._present() if task in ("", subtask.name)]

    def figures(self, comparisons: Callable[[str], CompareFigures]) -> SourceFigures:
        """For metrics. ``comparisons``: of a task. Like :meth:`status` it never waits for a server."""
        source, totals = self.config.source_id, self._host.service.totals
        return SourceFigures(
            source,
            self._relay_status(),
            self.relay.figures(),
            tuple(each.figures(totals.of(each.name, source), comparisons(each.name)) for each in self._all()),
            self.forecast(),
        )

    def forecast(self) -> SourceForecast:
        """What was last measured of the source and its relay log. Never waits."""
        return self._watch.current()

    def task_configs(self) -> Mapping[str, config_pb2.SubTaskConfig]:
        """The configurations of the source's tasks, by name."""
        return {subtask.name: subtask.config for subtask in self._all()}

    def sample(self, subtask: SubTask, *, is_compared: bool) -> SubTaskSample:
        """What the memory holds about a subtask now. Like :meth:`status` it never waits for a server."""
        source, unit, copying = self.config.source_id, subtask.replicating(), subtask.copying()
        relay, clock = self.relay, self._clock
        _, locks = self._host.shards.locks(subtask.name, 0, 0.0)
        return SubTaskSample(
            time.monotonic(),
            subtask.status(),
            RelaySample(
                relay.figures().fetched.bytes_written,
                relay.head().position,
                clock.position(),
                clock.round_trip(),
                relay.unknown() or clock.unknown(),
            ),
            self._host.service.totals.of(subtask.name, source),
            (unit.plans or ()) if unit is not None else (),
            unit.connections() if unit is not None else {},
            None if copying is None else CopySample(copying.reader_seconds(), copying.throttle(), copying.readers),
            is_compared,
            tuple(map(target_of, locks)),
        )

    def overview(self) -> list[diagnose_pb2.SubTaskOverview]:
        """The figures of all subtasks for `dmctl top`."""
        totals, source = self._host.service.totals, self.config.source_id
        silent_seconds = self.relay.figures().fetched.silent_seconds(time.monotonic())
        found: list[diagnose_pb2.SubTaskOverview] = []
        for subtask in self._present():
            copying = subtask.copying()
            seconds = totals.seconds(subtask.name, source)
            throttle = "" if copying is None else copying.throttle()
            found.append(overview(subtask.status(), seconds, throttle, silent_seconds))
        return found

    def purge_before(self, file: str, relay_id: str) -> worker_pb2.WorkerPurgeRelayResponse:
        """Purge the relay log; reports what was removed and why not more; see
        :meth:`shardmerge.worker.relay.retention.Retention.purge_before`."""
        purged = self.relay.purge_before(file, relay_id)
        return worker_pb2.WorkerPurgeRelayResponse(
            purged_segments=purged.segments,
            purged_bytes=purged.size,
            relay_begin=str(purged.begin),
            kept=kept_because(purged, file, self._tasks_holding(purged)),
        )

    def operate_schema(self, request: worker_pb2.WorkerSchemaRequest) -> worker_pb2.WorkerSchemaResponse:
        """See :func:`shardmerge.worker.daemon.commands.binlog_schema.operate_schema`. Raises SUBTASK_UNKNOWN too."""
        subtask = self.subtask(request.task)
        if subtask is None:
            raise errors.master.SUBTASK_UNKNOWN(task=request.task, source=request.source)
        return operate_schema(request, subtask, self.config, self._host.epochs)

    def _tasks_holding(self, purged: Purged) -> list[str]:
        """The tasks that keep what a purge left; for messages: they may have advanced since."""
        needs = [(subtask.name, subtask.relay_hold()) for subtask in self._present()]
        if purged.why is HeldBecause.UNKNOWN:
            return [name for name, need in needs if isinstance(need, HoldAll)]
        lowest = lowest_hold(need for _, need in needs)
        return [name for name, need in needs if need == lowest and isinstance(need, HoldFrom)]

    def _present(self) -> list[SubTask]:
        """The subtasks, and those without a record whose last run is not over yet."""
        with self._lock:
            ending = [subtask for subtask in self._ending if not subtask.join(0)]
        return [*self._all(), *ending]

    def promised_slots(self, task: str) -> int:
        """The Spark slots that subtasks other than ``task`` have or are about to take."""
        return sum(subtask.promised_slots() for subtask in self._all() if subtask.name != task)

    def _all(self) -> list[SubTask]:
        with self._lock:
            return [self._subtasks[name] for name in sorted(self._subtasks)]

    def _relay_status(self) -> worker_pb2.RelayStatus:
        state = self.relay.status()
        source = self._clock.position()
        head = state.head
        unknown = self.relay.unknown() or self._clock.unknown()
        status = worker_pb2.RelayStatus(
            master_binlog=str(source),
            master_binlog_gtid=source.gtid_set,
            relay_binlog=str(head.position),
            relay_binlog_gtid=head.position.gtid_set,
            relay_catch_up_master=head.position.reaches(source) and not unknown,
            stage=state.stage,
            head=head.offset.to_proto(),
            bytes_on_disk=state.bytes_on_disk,
            relay_sub_dir=state.relay_id,
            paused=self.relay.is_paused,
            unknown=unknown,
        )
        if state.error is not None:
            status.result.CopyFrom(error_to_proto(state.error))
        self.forecast().add_pauses(status, self.config.source_id)
        return status

    def _needed(self) -> RelayOffset | None:
        """The lowest offset that any subtask may need again; None: none needs the relay log."""
        if not self._reconciled:
            return _EVERYTHING
        match lowest_hold(subtask.relay_hold() for subtask in self._present()):
            case HoldAll():
                return _EVERYTHING
            case HoldFrom(offset=offset):
                return offset
            case HoldNothing():
                return None

    def _needed_by_others(self, task: str) -> bool:
        others = [subtask.relay_hold() for subtask in self._present() if subtask.name != task]
        return not self._reconciled or lowest_hold(others) != HoldNothing()


def relay_start(source: config_pb2.SourceConfig) -> SourcePosition | None:
    """The position that the source's file configures; None for none. Pure.

    Source: TiDB DM's documentation, "Relay Log", "Initial setup": ``relay-binlog-name`` and ``relay-binlog-gtid`` apply
    if there is no relay log yet; with ``enable-gtid`` the GTID set counts, else the file. A task that needs an earlier
    start restarts the log there.
    """
    configured = SourcePosition.from_proto(source.relay_start)
    if configured.gtid_set and (source.enable_gtid or not configured.file):
        return SourcePosition("", 0, configured.gtid_set)
    return SourcePosition(configured.file, configured.pos) if configured.file else None


def begin_relay(relay: Relay, source: config_pb2.SourceConfig) -> None:
    """Begin a relay log that has not begun at the position in the source's file, if there is one.

    Only for a source without tasks: otherwise the log begins where they begin, and the source may have purged the
    configured position long ago.
    """
    start = relay_start(source)
    if start is None or relay.relay_id:
        return
    try:
        relay.ensure_from(start)
    except ShardmergeError as error:
        log.warning("the relay log cannot begin at the configured position", source=source.source_id, error=error)
