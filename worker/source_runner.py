"""Everything the worker does for the source it is bound to: relay, clock, subtasks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pymysql

from proto import config_pb2, errors, rpc, worker_pb2
from proto.config.sealed import same_meaning
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker import source_time
from worker.connection import Endpoint, ServerInfo, Session, Side, coded, connect, current_position, server_info
from worker.ddl.schema_ops import operate_schema
from worker.host import NO_END, Epochs, Host, SourceEnd
from worker.lane_service import LaneService
from worker.leased_server_id import LeasedServerId
from worker.needs import NeedsFrom, NeedsNothing, NeedUnknown, combined
from worker.position import RelayOffset, SourcePosition
from worker.relay.caught_up import CaughtUp
from worker.relay.model import PurgePolicy
from worker.relay.purge import Purged, Why, kept_because
from worker.relay.relay import Relay
from worker.relay_start import begin_relay
from worker.shard_desk import ShardDesk
from worker.spark import SparkRunner
from worker.subtask import Decision, SubTask
from worker.switch import check_switch
from worker.unit import StopSignal

log = get_logger()

_CLOCK_SECONDS = 1.0
_CLOCK_ANSWER_SECONDS = 10.0
_EVERYTHING = RelayOffset(0, 0)


class PollingClock:
    """Asks the source for its binlog's end once a second; see :class:`worker.host.SourceClock`."""

    def __init__(self, endpoint: Endpoint, source_id: str) -> None:
        self._endpoint = endpoint
        self._source_id = source_id
        self._end = NO_END
        self._stop = StopSignal()
        self._thread = threading.Thread(target=self._run, name="source-clock", daemon=True)
        self._thread.start()

    def position(self) -> SourcePosition:
        return self._end.position

    def end(self) -> SourceEnd:
        return self._end

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_CLOCK_ANSWER_SECONDS)

    def _run(self) -> None:
        session: Session | None = None
        info: ServerInfo | None = None
        while not self._stop.is_set:
            try:
                if session is None or info is None:
                    session = connect(
                        self._endpoint, Side.SOURCE, name=self._source_id, read_timeout=_CLOCK_ANSWER_SECONDS
                    )
                    info = server_info(session)
                since = source_time.now(session)
                self._end = SourceEnd(current_position(session, info), since)
            except pymysql.MySQLError as error:
                reason = str(coded(error, self._endpoint, Side.SOURCE, self._source_id))
                log.warning("source does not tell its position", source=self._source_id, error=reason)
                session = None
            except ShardmergeError as error:
                log.warning("source does not tell its position", source=self._source_id, error=str(error))
                session = None
            self._stop.wait(_CLOCK_SECONDS if session is not None else 5 * _CLOCK_SECONDS)
        if session is not None:
            session.close()


class SourceRunner:
    """Owner of the source's relay and subtasks. Called by the daemon's reconcile thread only, but for
    :meth:`status` and :meth:`interrupt`."""

    def __init__(
        self,
        config: config_pb2.SourceConfig,
        relay_directory: Path,
        server_id: LeasedServerId,
        spark: SparkRunner,
        service: LaneService,
        lane_address: str,
        epochs: Epochs,
        run_allowed: Callable[[], bool],
        shards: ShardDesk,
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
        )
        self._server_id = server_id
        self._subtasks: dict[str, SubTask] = {}
        self._ending: list[SubTask] = []
        self._lock = threading.Lock()
        self._run_allowed = run_allowed
        self._caught_up = CaughtUp()
        self._reconciled = False  # before that, subtasks may exist that nobody has told about
        self._clock = PollingClock(endpoint, config.source_id)
        self._host = Host(
            config, self.relay, self._clock, epochs, spark, service, lane_address, self._needed_by_others, shards
        )
        self.relay.set_needed(self._needed)
        self.relay.pause(paused=relay_paused)
        self.relay.start()

    def adopt(self, config: config_pb2.SourceConfig) -> bool:
        """Take over another configuration; False when it needs a restart. Filters are part of the subtasks'
        configurations. A secret may be stored in another form and still be the same secret. Raises what
        :func:`proto.config.sealed.same_meaning` raises."""
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
        """See :func:`worker.switch.check_switch`."""
        return check_switch(self.relay, request.source, request.subtasks)

    def relay_needs(self) -> worker_pb2.RelayNeedsResponse:
        """From where on the subtasks may need the relay log; as long as one cannot say: from its beginning.

        Complete: what they need is known, and the log reaches to where the source ended when this was asked before.
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
        """Make the subtasks what the records say: start new ones, decide, end those without a record."""
        with self._lock:
            known = dict(self._subtasks)
        if not decisions and not self._reconciled:
            begin_relay(self.relay, self.config)
        for task, decision in decisions.items():
            subtask = known.get(task)
            if subtask is not None:
                subtask.decide(decision)
                continue
            # A task stopped and started again at once: the old run must be over first.
            self._join_ended(task, 60.0)
            with self._lock:
                self._subtasks[task] = SubTask(decision, self._host, self._run_allowed)
        for task, subtask in known.items():
            if task not in decisions:
                subtask.end()
                with self._lock:
                    del self._subtasks[task]
                    self._ending.append(subtask)
        with self._lock:
            self._ending = [subtask for subtask in self._ending if not subtask.join(0)]
        self._reconciled = True

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
        """The worker is registered again: what was interrupted goes on."""
        self._server_id.hold_again()
        for subtask in self._all():
            subtask.wake()

    def stop(self, seconds: float) -> bool:
        """End all subtasks within the budget, then the relay. False when a subtask did not end in time."""
        everyone = [*self._all(), *self._ending]
        for subtask in everyone:
            subtask.end()
        late = [subtask for subtask in everyone if not subtask.join(seconds)]
        self._clock.stop()
        self.relay.stop()
        self._server_id.release()
        return not late

    def settled(self) -> bool:
        """Whether every subtask has acted on its newest decision."""
        return all(subtask.settled for subtask in self._present())

    def status(self, task: str) -> tuple[worker_pb2.RelayStatus, list[worker_pb2.SubTaskStatus]]:
        """The relay's status and those of the subtasks (of ``task`` only, unless it is "")."""
        return self._relay_status(), [subtask.status() for subtask in self._present() if task in ("", subtask.name)]

    def purge_before(self, file: str, relay_id: str) -> worker_pb2.WorkerPurgeRelayResponse:
        """What was removed of the relay log, and why not more; see :meth:`worker.relay.keeper.Keeper.purge_before`."""
        purged = self.relay.purge_before(file, relay_id)
        return worker_pb2.WorkerPurgeRelayResponse(
            purged_segments=purged.segments,
            purged_bytes=purged.size,
            relay_begin=str(purged.begin),
            kept=kept_because(purged, file, self._holding(purged)),
        )

    def operate_schema(self, request: worker_pb2.WorkerSchemaRequest) -> worker_pb2.WorkerSchemaResponse:
        """See :func:`worker.ddl.schema_ops.operate_schema`. Raises SUBTASK_UNKNOWN too."""
        subtask = self.subtask(request.task)
        if subtask is None:
            raise errors.master.SUBTASK_UNKNOWN(task=request.task, source=request.source)
        return operate_schema(request, subtask, self.config, self._host.epochs)

    def _holding(self, purged: Purged) -> list[str]:
        """The tasks that hold back what a purge left; for people: they may have gone on since."""
        needs = [(subtask.name, subtask.need()) for subtask in self._present()]
        if purged.why is Why.UNKNOWN:
            return [name for name, need in needs if isinstance(need, NeedUnknown)]
        lowest = combined(need for _, need in needs)
        return [name for name, need in needs if need == lowest and isinstance(need, NeedsFrom)]

    def _present(self) -> list[SubTask]:
        """The subtasks, and those without a record whose last run is not over yet."""
        with self._lock:
            ending = [subtask for subtask in self._ending if not subtask.join(0)]
        return [*self._all(), *ending]

    def _all(self) -> list[SubTask]:
        with self._lock:
            return [self._subtasks[name] for name in sorted(self._subtasks)]

    def _relay_status(self) -> worker_pb2.RelayStatus:
        state = self.relay.status()
        source = self._clock.position()
        head = state.head
        status = worker_pb2.RelayStatus(
            master_binlog=str(source),
            master_binlog_gtid=source.gtid_set,
            relay_binlog=str(head.position),
            relay_binlog_gtid=head.position.gtid_set,
            relay_catch_up_master=head.position.reaches(source),
            stage=state.stage,
            head=head.offset.to_proto(),
            bytes_on_disk=state.bytes_on_disk,
            relay_sub_dir=state.relay_id,
            paused=self.relay.is_paused,
        )
        if state.error is not None:
            status.result.CopyFrom(rpc.error_to_proto(state.error))
        return status

    def _needed(self) -> RelayOffset | None:
        """The lowest offset any subtask may need again, for the relay; None: nobody needs anything."""
        if not self._reconciled:
            return _EVERYTHING
        match combined(subtask.need() for subtask in self._present()):
            case NeedUnknown():
                return _EVERYTHING
            case NeedsFrom(offset=offset):
                return offset
            case NeedsNothing():
                return None

    def _needed_by_others(self, task: str) -> bool:
        others = [subtask.need() for subtask in self._present() if subtask.name != task]
        return not self._reconciled or combined(others) != NeedsNothing()
