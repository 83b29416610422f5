"""Runs a subtask in this process: real servers, relay, gRPC; lanes are threads or processes instead of Spark tasks."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable, Iterable

from shardmerge.proto import config_pb2, errors, state_pb2, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql import server_clock
from shardmerge.worker.core.mysql.connection import Side, current_position, server_info
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stored_override import StoredOverride
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.core.task_runner import TaskRunner
from shardmerge.worker.daemon.subtask.run import SubTaskRun
from shardmerge.worker.daemon.subtask.source_context import SourceContext
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import own_tracks
from shardmerge.worker.ddl.driver import SharedByStreams, StatementDriver
from shardmerge.worker.ddl.locks.lock_client import LockClient
from shardmerge.worker.relay.source_clock import SourceEnd
from shardmerge.worker.replicate.join.unit import JoiningUnit
from shardmerge.worker.replicate.unit import ReplicateUnit
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.target.records.partitioning import partitioning_for
from shardmerge.worker.unit.contract import Failed, Outcome, ProcessUnit
from shardmerge.worker.unit.run_context import RunContext
from tests.integration.snapshot_rig import META, SOURCE, TASK, Rig
from tests.support.database import Database
from tests.support.task_runners import Threads
from tests.support.wait import until


class Run:
    """One run of the subtask with an epoch of its own, in a thread."""

    def __init__(
        self, config: config_pb2.SubTaskConfig, host: SourceContext, ops: tuple[StoredOverride, ...] = ()
    ) -> None:
        self.stop_signal = StopSignal()
        self.unit: ProcessUnit | None = None
        self._outcomes: list[Outcome] = []
        self._ops = ops
        run = SubTaskRun(config, "", "", host, self)
        self._thread = threading.Thread(target=self._go, args=(run,))
        self._thread.start()

    def _go(self, run: SubTaskRun) -> None:
        try:
            self._outcomes.append(run.run(self.stop_signal))
        except Exception as error:
            self._outcomes.append(Failed(errors.worker.INTERNAL(kind="a test's", where="the run", reason=error)))
            raise

    def epoch_acquired(self, epoch: int) -> None:
        pass

    def phase_known(self, *, fresh: bool) -> None:
        pass

    def unit_begins(self, unit: ProcessUnit) -> None:
        self.unit = unit

    def reader_time(self, cause: str, seconds: float) -> None:
        pass

    def binlog_ops(self) -> tuple[StoredOverride, ...]:
        return self._ops

    def background_activity(self, activity: Callable[[], str]) -> None:
        pass

    def status(self) -> worker_pb2.SyncStatus:
        """Return the status of the replicate unit, once it exists."""
        unit = until(lambda: self.unit if isinstance(self.unit, ReplicateUnit) else None, "the unit has begun")
        return unit.status()

    def lane(self, number: int) -> worker_pb2.LaneStatus:
        return until(lambda: {lane.lane: lane for lane in self.status().lanes}.get(number), f"lane {number} is known")

    def until_lane(self, number: int, condition: Callable[[worker_pb2.LaneStatus], bool], what: str) -> None:
        until(lambda: condition(self.lane(number)), f"lane {number} {what}")

    def until_synced(self) -> None:
        until(lambda: self.status().synced or self._outcomes, "the run has applied everything")
        assert not self._outcomes, self._outcomes

    def until_joined(self, target: Database, seconds: float = 120.0) -> None:
        """Wait until all tables are copied and in the subtask's own stream, and everything is applied."""

        def done() -> bool:
            assert not self.ended, self.join()
            return has_joined(self, target)

        try:
            until(done, "all tables are in the stream, and everything is applied", seconds)
        except AssertionError:
            faulthandler.dump_traceback(all_threads=True)
            print(None if self.unit is None else self.unit.status())
            raise

    @property
    def ended(self) -> bool:
        return bool(self._outcomes)

    def join(self, seconds: float = 300.0) -> Outcome:
        self._thread.join(seconds)
        if not self._outcomes:
            faulthandler.dump_traceback(all_threads=True)
            raise AssertionError(f"the run has not ended within {seconds:.0f} s; see the threads' stacks")
        [outcome] = self._outcomes
        return outcome

    def stop(self) -> Outcome:
        self.stop_signal.set()
        return self.join()


def has_joined(run: Run, target: Database) -> bool:
    """Return whether all tables are copied and in the subtask's own stream, and everything is applied."""
    unit = run.unit
    if isinstance(unit, JoiningUnit) and unit.join_status() is not None:
        return False
    status = unit.status() if unit is not None else None
    if not getattr(status, "synced", False):
        return False
    return target.query(f"SELECT COUNT(*) FROM {META}.snapshot_interrupted") == [(0,)]


class NoLocks:
    """See :class:`shardmerge.worker.ddl.locks.lock_client.LockClient`: no master listens, and there are no locks."""

    def publish(self, task: str, source: str, record: state_pb2.ShardRecord) -> None:
        pass

    def wake(self) -> None:
        pass

    def locks(self, task: str, seen: int, seconds: float) -> tuple[int, tuple[state_pb2.LockRecord, ...]]:
        time.sleep(max(seconds, 0.0))
        return 0, ()

    def current_lock(self, task: str, target: TargetTable) -> state_pb2.LockRecord | None:
        return None

    def sources(self, task: str) -> frozenset[str]:
        return frozenset()


class LaneRig(Rig):
    """Replication from the position where the source's binlog ended when the rig was created; no snapshot. ``locks``:
    of sharding DDLs; none are opened unless a test sets it."""

    _position = SourcePosition("", 0)
    locks: LockClient = NoLocks()

    def replicate(self, lanes: int, task_runner: TaskRunner | None = None, ops: tuple[StoredOverride, ...] = ()) -> Run:
        """Start a run with so many lanes and the next epoch."""
        config = config_pb2.SubTaskConfig()
        config.CopyFrom(self.config)
        config.mode = config_pb2.TASK_MODE_INCREMENTAL
        config.start.CopyFrom(self.start.to_proto())
        config.replicate.lanes = lanes
        return self.begin(config, task_runner, ops)

    def begin(
        self,
        config: config_pb2.SubTaskConfig,
        task_runner: TaskRunner | None = None,
        ops: tuple[StoredOverride, ...] = (),
    ) -> Run:
        """Start a run of any mode with the next epoch."""
        source = config_pb2.SourceConfig(source_id=SOURCE)
        getattr(source, "from").CopyFrom(config_pb2.Endpoint(host=self.source.host, port=self.source.port, user="root"))
        host = SourceContext(
            source=source,
            relay=self.relay,
            clock=self,
            epochs=self,
            task_runner=task_runner or Threads(),
            service=self.service,
            lane_address=self.address,
            needed_by_others=lambda task: False,
            shards=self.locks,
        )
        return Run(config, host, ops)

    def until_fetched(self) -> None:
        """Wait until the relay log has everything that the source has written."""
        end = self.position()
        until(lambda: self.relay.head().position.reaches(end), "the relay log has the statements")

    def position(self) -> SourcePosition:
        """Implement SourceClock: return the last answer while the source gives none."""
        try:
            session = self.session(Side.SOURCE)
        except ShardmergeError:
            return self._position
        try:
            self._position = current_position(session, server_info(session))
        finally:
            session.close()
        return self._position

    def end(self) -> SourceEnd:
        """Implement SourceClock."""
        session = self.session(Side.SOURCE)
        try:
            since = server_clock.now(session)
            return SourceEnd(current_position(session, server_info(session)), since)
        finally:
            session.close()

    def age(self) -> float:
        """Implement SourceClock."""
        return 0.0

    def unknown(self) -> str:
        """Implement SourceClock."""
        return "" if self._position.file else "the end of the source's binlog has not been read yet"

    def target_of(self, task: str, source: str) -> str:
        """Implement Epochs."""
        return ""

    def acquire(self, task: str, source: str, above: int, target: str = "") -> int:
        """Implement Epochs."""
        self.epoch = next(number for number in self._epochs if number > above)
        return self.epoch

    def rise_above(self, epoch: int) -> None:
        """Implement Epochs."""

    def checkpoints(self) -> list[tuple[int, int, int, int]]:
        """Return (lane, segment, byte, skip_events) as recorded at the target."""
        found = self.target.query(
            f"SELECT lane, segment, byte, skip_events FROM {META}.lane_checkpoint "
            f"WHERE task = '{TASK}' AND source = '{SOURCE}' ORDER BY lane"
        )
        return [(int(str(a)), int(str(b)), int(str(c)), int(str(d))) for a, b, c, d in found]

    def until_taken_over(self, epoch: int) -> None:
        """Wait until no epoch older than ``epoch`` can commit."""
        recorded = f"SELECT 1 FROM {META}.subtask WHERE task = '{TASK}' AND source = '{SOURCE}' AND epoch >= {epoch}"
        until(lambda: self.target.query(recorded), f"epoch {epoch} has taken over")

    def until_past(self, position: SourcePosition, lanes: Iterable[int]) -> None:
        """Wait until each of these lanes has applied all events before ``position``."""
        end = self.relay.locate(position, 300, StopSignal())
        wanted = set(lanes)

        def past() -> bool:
            there = {lane for lane, segment, byte, _ in self.checkpoints() if RelayOffset(segment, byte) >= end}
            return wanted <= there

        until(past, f"the lanes {sorted(wanted)} have applied up to {end}")


def driver_of(context: RunContext, plans: tuple[TablePlan, ...], lanes: int = 2) -> StatementDriver:
    """Return the driver of the subtask's own lanes."""
    dealing = partitioning_for(context.config, lanes, plans)
    standing = StreamTables(context.tables, own_tracks(plans), dealing, TableScope(context.rules))
    return StatementDriver(context, Stream.MAIN, standing, SharedByStreams(), relay_id=context.relay.relay_id)
