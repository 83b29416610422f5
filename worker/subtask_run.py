"""One run of a subtask under one epoch: takes over at the target, then unit after unit."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

import pymysql

from proto import config_pb2, errors
from proto.errors import ShardmergeError
from worker import meta
from worker.connection import Endpoint, Session, Side, coded, connect, current_position, server_info
from worker.context import SubTaskContext
from worker.host import Host
from worker.meta import Phase
from worker.plan import TablePlan
from worker.plans import make_plans, read_structures
from worker.position import RelayOffset, SourcePosition
from worker.replicate import checkpoint as checkpoints
from worker.replicate.unit import LANES_DEFAULT, ReplicateUnit, first_checkpoints
from worker.rules import Rules
from worker.snapshot.handover import Handover
from worker.snapshot.store import read_handover
from worker.snapshot.unit import SnapshotUnit
from worker.table import Table
from worker.unit import Failed, Finished, Outcome, ProcessUnit, Stopped, StopSignal

_LOCATE_SECONDS = 600.0
_ANSWER_SECONDS = 300.0


class SubTaskRun:
    """Made for one run, used by one thread; ``on_unit`` hears of each unit before it runs."""

    def __init__(
        self,
        config: config_pb2.SubTaskConfig,
        meta_token: str,
        host: Host,
        on_unit: Callable[[ProcessUnit], None],
        on_epoch: Callable[[int], None],
    ) -> None:
        self._config = config
        self._meta_token = meta_token
        self._host = host
        self._on_unit = on_unit
        self._on_epoch = on_epoch
        self._source_id = host.source.source_id
        self._who = (config.meta_schema, config.task, self._source_id)
        self._source_endpoint = Endpoint.from_proto(getattr(host.source, "from"))
        self._target_endpoint = Endpoint.from_proto(config.target)

    def run(self, stop: StopSignal) -> Outcome:
        """Until finished, stopped or failed; raises nothing but programming errors."""
        try:
            return self._run(stop)
        except ShardmergeError as error:
            return Failed(error)

    def _run(self, stop: StopSignal) -> Outcome:
        config, host = self._config, self._host
        rules = Rules.from_config(config)
        with ExitStack() as sessions:
            target = self._target(sessions)
            source = self._source(sessions)
            epoch = host.epochs.acquire(config.task, self._source_id)
            self._on_epoch(epoch)
            with _coding(self._target_endpoint, Side.TARGET, "target"):
                meta.ensure_meta(target, config.meta_schema)
                row = meta.take_over(target, *self._who, epoch, self._meta_token)
            phase, start = row.phase, row.start
            if phase is Phase.FINISHED:
                return Finished()
            if phase is Phase.NEW or start is None:
                phase, start, tables = self._begin(source, target, rules, epoch, stop)
            else:
                with _coding(self._target_endpoint, Side.TARGET, "target"):
                    tables = meta.read_tables(target, *self._who)
            context = self._context(rules, epoch, tables)
            with _coding(self._source_endpoint, Side.SOURCE, self._source_id):
                plans = make_plans(rules, self._source_id, tables, source, target, config.meta_schema)
        # Before any offset is asked of the relay: at a worker that is new to the source it has not begun.
        host.relay.ensure_from(start if phase is Phase.SNAPSHOT else self._lowest_checkpoint())
        if phase is Phase.SNAPSHOT:
            outcome = self._run_unit(SnapshotUnit(context, plans), stop)
            if not isinstance(outcome, Finished):
                return outcome
            if config.mode == config_pb2.TASK_MODE_FULL:
                self._finish(epoch)
                return Finished()
        handover = self._handover(plans, stop)
        if phase is Phase.SNAPSHOT:
            self._enter_replicate(epoch, start, handover, stop)
        if stop.is_set:
            return Stopped()
        return self._run_unit(ReplicateUnit(context, host.service, plans, handover, host.clock.position), stop)

    def _run_unit(self, unit: ProcessUnit, stop: StopSignal) -> Outcome:
        self._on_unit(unit)
        return unit.run(stop)

    def _target(self, sessions: ExitStack) -> Session:
        session = connect(self._target_endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)
        sessions.callback(session.close)
        return session

    def _source(self, sessions: ExitStack) -> Session:
        session = connect(self._source_endpoint, Side.SOURCE, name=self._source_id, read_timeout=_ANSWER_SECONDS)
        sessions.callback(session.close)
        return session

    def _context(self, rules: Rules, epoch: int, tables: tuple[Table, ...]) -> SubTaskContext:
        host = self._host
        return SubTaskContext(
            config=self._config,
            source=host.source,
            epoch=epoch,
            rules=rules,
            tables=tables,
            source_endpoint=self._source_endpoint,
            target_endpoint=self._target_endpoint,
            relay=host.relay,
            spark=host.spark,
            lane_address=host.lane_address,
            registry=host.service,
        )

    # --- from one phase to the next

    def _begin(
        self, source: Session, target: Session, rules: Rules, epoch: int, stop: StopSignal
    ) -> tuple[Phase, SourcePosition, tuple[Table, ...]]:
        """Leave phase NEW. The relay reaches back to ``start`` before anything else happens, so no
        change after it can be missed."""
        config = self._config
        incremental = config.mode == config_pb2.TASK_MODE_INCREMENTAL
        with _coding(self._source_endpoint, Side.SOURCE, self._source_id):
            start = current_position(source, server_info(source))
            if incremental and (config.start.file or config.start.gtid_set):
                start = SourcePosition.from_proto(config.start)
            self._host.relay.ensure_from(start)
            # After the position: a table altered in between meets its DDL in the stream.
            tables = read_structures(source, rules, self._source_id)
        phase = Phase.REPLICATE if incremental else Phase.SNAPSHOT
        first: tuple[checkpoints.Checkpoint, ...] = ()
        if incremental:
            offset = self._host.relay.locate(start, _LOCATE_SECONDS, stop)
            first = first_checkpoints(self._lanes, epoch, self._host.relay, start, offset)
        with _coding(self._target_endpoint, Side.TARGET, "target"):
            meta.begin(
                target,
                *self._who,
                epoch,
                phase,
                start,
                tables,
                lambda session: checkpoints.insert(session, *self._who, first),
            )
        return phase, start, tables

    def _lowest_checkpoint(self) -> SourcePosition:
        """Where the stream must be able to begin again in phase REPLICATE. Raises NO_START."""
        with ExitStack() as sessions, _coding(self._target_endpoint, Side.TARGET, "target"):
            found = checkpoints.read_all(self._target(sessions), *self._who)
        if not found:
            raise errors.replicate.NO_START(
                task=self._config.task,
                source=self._source_id,
                phase=Phase.REPLICATE.value,
                schema=self._config.meta_schema,
            )
        return min((item.position for item in found), key=SourcePosition.file_order)

    @property
    def _lanes(self) -> int:
        return self._config.replicate.lanes or LANES_DEFAULT

    def _handover(self, plans: tuple[TablePlan, ...], stop: StopSignal) -> Handover | None:
        """The chunks' high watermarks as offsets of the relay at hand; None when there was no snapshot."""
        with ExitStack() as sessions:
            target = self._target(sessions)
            with _coding(self._target_endpoint, Side.TARGET, "target"):
                return read_handover(target, *self._who, plans, self._host.relay, self._source_endpoint, stop)

    def _enter_replicate(self, epoch: int, start: SourcePosition, handover: Handover | None, stop: StopSignal) -> None:
        """The stream starts at the lowest high watermark; checkpoints and phase change in one transaction."""
        relay = self._host.relay
        lowest: SourcePosition = start
        offset: RelayOffset
        if handover is not None:
            lowest, offset = handover.lowest
        else:
            offset = relay.locate(start, _LOCATE_SECONDS, stop)
        first = first_checkpoints(self._lanes, epoch, relay, lowest, offset)
        with ExitStack() as sessions, _coding(self._target_endpoint, Side.TARGET, "target"):
            target = self._target(sessions)
            meta.enter_phase(
                target,
                *self._who,
                epoch,
                Phase.REPLICATE,
                lambda session: checkpoints.insert(session, *self._who, first),
            )

    def _finish(self, epoch: int) -> None:
        with ExitStack() as sessions, _coding(self._target_endpoint, Side.TARGET, "target"):
            meta.enter_phase(self._target(sessions), *self._who, epoch, Phase.FINISHED, lambda session: None)


@contextmanager
def _coding(endpoint: Endpoint, side: Side, name: str) -> Generator[None]:
    """Server errors of the block leave as coded errors of this endpoint."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise coded(error, endpoint, side, name) from error
