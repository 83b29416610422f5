"""One run of a subtask under one epoch: takes over at the target, then unit after unit."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Protocol

import pymysql

from proto import config_pb2
from proto.errors import ShardmergeError
from worker import bounds, ends, meta
from worker.bounds import Bound
from worker.connection import Endpoint, Session, Side, coded, connect, current_position, server_info
from worker.context import SubTaskContext
from worker.ended import EndedUnit, load_report
from worker.host import Host
from worker.meta import Phase
from worker.plan import TablePlan
from worker.plans import make_plans, read_structures
from worker.position import SourcePosition
from worker.relay.order import configured_start, lowest_position
from worker.replicate import checkpoint as checkpoints
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.dealing import Dealing
from worker.replicate.unit import LANES_DEFAULT, ReplicateUnit, Standing, first_checkpoints
from worker.rules import Rules
from worker.snapshot.handover import Handover
from worker.snapshot.store import SnapshotStore, read_handover
from worker.snapshot.unit import SnapshotUnit
from worker.start_at import Begin, check_keys, tells_commit_times
from worker.stop_at import Ending
from worker.table import Table
from worker.unit import Failed, Finished, Outcome, ProcessUnit, Stopped, StopSignal

_LOCATE_SECONDS = 600.0
_ANSWER_SECONDS = 300.0


class Owner(Protocol):
    """Who hears how the run goes on."""

    def epoch_acquired(self, epoch: int) -> None: ...

    def phase_known(self, *, fresh: bool) -> None:
        """``fresh``: nothing has begun, so nothing of the relay log is needed."""
        ...

    def unit_begins(self, unit: ProcessUnit) -> None: ...


class SubTaskRun:
    """Made for one run, used by one thread."""

    def __init__(
        self,
        config: config_pb2.SubTaskConfig,
        meta_token: str,
        host: Host,
        owner: Owner,
    ) -> None:
        self._config = config
        self._meta_token = meta_token
        self._host = host
        self._owner = owner
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
            epoch = host.epochs.acquire(config.task, self._source_id)
            self._owner.epoch_acquired(epoch)
            with _coding(self._target_endpoint, Side.TARGET, "target"):
                meta.ensure_meta(target, config.meta_schema)
                row = meta.take_over(target, *self._who, epoch, self._meta_token)
            phase, start, dealing = row.phase, row.start, Dealing.from_json(row.dealing)
            if phase is Phase.FINISHED:
                ended = self._ended(target, epoch)
                if ended is not None:
                    return ended
                phase = Phase.REPLICATE
            host.relay.start()  # again, after an error that an operator had to mend
            self._owner.phase_known(fresh=phase is Phase.NEW)
            source = self._source(sessions)
            ending = self._ending(source, target, epoch, phase)
            found: tuple[Checkpoint, ...] = ()
            if phase is Phase.NEW or start is None:
                phase, start, tables, found = self._begin(source, target, rules, epoch, stop)
                self._owner.phase_known(fresh=False)
            else:
                with _coding(self._target_endpoint, Side.TARGET, "target"):
                    tables = meta.read_tables(target, *self._who)
                    if phase is Phase.REPLICATE:
                        # Nobody else moves them: the epoch is ours.
                        found = checkpoints.read_begun(target, *self._who)
            context = self._context(rules, epoch, tables)
            shards = dealing.shards if dealing is not None else None
            with _coding(self._source_endpoint, Side.SOURCE, self._source_id):
                plans = make_plans(rules, self._source_id, tables, source, target, config.meta_schema, shards)
        # Before any offset is asked of the relay: at a worker that is new to the source it has not begun.
        host.relay.ensure_from(_lowest(found) if found else start)
        if phase is Phase.SNAPSHOT:
            outcome = self._run_unit(SnapshotUnit(context, plans), stop)
            if not isinstance(outcome, Finished):
                return outcome
            if config.mode == config_pb2.TASK_MODE_FULL:
                self._finish(epoch)
                with ExitStack() as sessions:
                    return self._ended(self._target(sessions), epoch) or Finished()
        # The chunks' marks of every table whose rows the lanes may still meet, by the rules they were dealt by.
        marked = dealing.plans(self._source_id, tables) if dealing is not None else plans
        with host.relay.one_generation() as relay_id:
            handover = self._handover(marked, stop, replicating=bool(found))
        if phase is Phase.SNAPSHOT:
            found = self._enter_replicate(epoch, start, handover, relay_id, stop)
        if stop.is_set:
            return Stopped()
        standing = Standing(found, dealing, self._settled(), ending)
        unit = ReplicateUnit(context, host.service, plans, handover, host.clock.position, standing)
        outcome = self._run_unit(unit, stop)
        return self._reached(epoch, ending) if isinstance(outcome, Finished) else outcome

    def _run_unit(self, unit: ProcessUnit, stop: StopSignal) -> Outcome:
        self._owner.unit_begins(unit)
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
    ) -> tuple[Phase, SourcePosition, tuple[Table, ...], tuple[Checkpoint, ...]]:
        """Leave phase NEW. The relay reaches back to ``start`` before anything else happens, so no
        change after it can be missed."""
        config = self._config
        incremental = config.mode == config_pb2.TASK_MODE_INCREMENTAL
        with _coding(self._source_endpoint, Side.SOURCE, self._source_id):
            info = server_info(source)
            start = current_position(source, info)
            alone = not self._host.needed_by_others(config.task)
            settled: SourcePosition | None = None
            if incremental and (config.start.file or config.start.gtid_set):
                start = configured_start(config.start, info.identity, by_gtid=self._host.source.enable_gtid)
            elif incremental and config.HasField("start_at"):
                begin = Begin(self._source_id, self._source_endpoint, source, info, self._host.relay, alone, stop)
                start, settled = begin.at(config.start_at) or (start, None)
            self._host.relay.ensure_from(start, fresh=alone)
            # After the position: a table altered in between meets its DDL in the stream.
            tables = read_structures(source, rules, self._source_id)
            if settled is not None:
                check_keys(self._source_id, config.start_at.time, tables)
        phase = Phase.REPLICATE if incremental else Phase.SNAPSHOT
        first: tuple[Checkpoint, ...] = ()
        if incremental:
            first = self._first_checkpoints(epoch, start, stop)
            start = first[0].position
        with _coding(self._target_endpoint, Side.TARGET, "target"):
            meta.begin(
                target,
                *self._who,
                epoch,
                phase,
                start,
                tables,
                lambda session: self._insert_first(session, first, settled),
            )
        return phase, start, tables, first

    def _insert_first(self, session: Session, first: tuple[Checkpoint, ...], settled: SourcePosition | None) -> None:
        checkpoints.insert(session, *self._who, first)
        if settled is not None:
            bounds.write(session, *self._who, Bound(bounds.Kind.SETTLED, self._config.start_at.time, settled, 0.0))

    @property
    def _lanes(self) -> int:
        return self._config.replicate.lanes or LANES_DEFAULT

    def _handover(self, plans: tuple[TablePlan, ...], stop: StopSignal, *, replicating: bool) -> Handover | None:
        """The chunks' high watermarks as offsets of the relay at hand; None when there was no snapshot."""
        with ExitStack() as sessions:
            target = self._target(sessions)
            with _coding(self._target_endpoint, Side.TARGET, "target"):
                return read_handover(
                    target,
                    *self._who,
                    plans,
                    self._host.relay,
                    self._source_endpoint,
                    stop,
                    replicating=replicating,
                )

    def _enter_replicate(
        self, epoch: int, start: SourcePosition, handover: Handover | None, relay_id: str, stop: StopSignal
    ) -> tuple[Checkpoint, ...]:
        """The stream starts at the lowest high watermark; checkpoints and phase change in one transaction."""
        if handover is None:
            first = self._first_checkpoints(epoch, start, stop)
        else:
            _, offset = handover.lowest
            first = first_checkpoints(self._lanes, epoch, relay_id, self._host.relay.position_at(offset), offset)
        with ExitStack() as sessions, _coding(self._target_endpoint, Side.TARGET, "target"):
            target = self._target(sessions)
            meta.enter_phase(
                target,
                *self._who,
                epoch,
                Phase.REPLICATE,
                lambda session: checkpoints.insert(session, *self._who, first),
            )
        return first

    def _first_checkpoints(self, epoch: int, start: SourcePosition, stop: StopSignal) -> tuple[Checkpoint, ...]:
        with self._host.relay.one_generation() as relay_id:
            offset = self._host.relay.locate(start, _LOCATE_SECONDS, stop)
            # As the relay knows it, its GTID set included: what the source told of that was read a moment apart.
            position = self._host.relay.position_at(offset)
        return first_checkpoints(self._lanes, epoch, relay_id, position, offset)

    def _ended(self, target: Session, epoch: int) -> Outcome | None:
        """Nothing is left to do: the records say what it came to, and neither source nor relay log is needed.

        None: it has ended where it no longer is to end, and goes on.
        """
        config = self._config
        with _coding(self._target_endpoint, Side.TARGET, "target"):
            found = bounds.read(target, *self._who).get(bounds.Kind.REACHED)
            if found is None:
                status = load_report(SnapshotStore(*self._who, 0).report(target))
            elif found.given == ends.given(config):
                status = ends.reached_status(found, config)
            else:
                self._enter(target, epoch, Phase.REPLICATE, self._forget_reached)
                return None
        return self._run_unit(EndedUnit(status), StopSignal())

    def _forget_reached(self, session: Session) -> None:
        bounds.forget(session, *self._who, bounds.Kind.REACHED)

    def _reached(self, epoch: int, ending: Ending) -> Outcome:
        """Every lane has ended at the configured end."""
        assert ending.stop is not None  # noqa: S101 - for the type checker: nothing else ends lanes
        stop = ending.stop
        with ExitStack() as sessions, _coding(self._target_endpoint, Side.TARGET, "target"):
            target = self._target(sessions)
            bound = ends.reached(stop, checkpoints.read_begun(target, *self._who))
            self._enter(target, epoch, Phase.FINISHED, lambda session: bounds.write(session, *self._who, bound))
            return self._ended(target, epoch) or Finished()

    def _settled(self) -> Bound | None:
        """Before which place the target may hold changes already; None: it holds none."""
        with ExitStack() as sessions, _coding(self._target_endpoint, Side.TARGET, "target"):
            return bounds.read(self._target(sessions), *self._who).get(bounds.Kind.SETTLED)

    def _ending(self, source: Session, target: Session, epoch: int, phase: Phase) -> Ending:
        """Where it is to end."""
        config, host = self._config, self._host
        with _coding(self._target_endpoint, Side.TARGET, "target"):
            recorded = bounds.read(target, *self._who)
        with _coding(self._source_endpoint, Side.SOURCE, self._source_id):
            info = server_info(source)
            stop = ends.understood(config, source, info, recorded.get(bounds.Kind.STOP))
            if stop is not None and phase is Phase.NEW and ends.begins_now(config):
                ends.check_ahead(config, stop, source, info)
        if stop is not None and stop.bound != recorded.get(bounds.Kind.STOP):
            bound = stop.bound
            with _coding(self._target_endpoint, Side.TARGET, "target"):
                self._enter(target, epoch, phase, lambda session: bounds.write(session, *self._who, bound))
        exact = tells_commit_times(info)
        return Ending(config.task, self._source_id, host.relay, stop, host.clock.end, exact)

    def _enter(self, target: Session, epoch: int, phase: Phase, also: Callable[[Session], None]) -> None:
        meta.enter_phase(target, *self._who, epoch, phase, also)

    def _finish(self, epoch: int) -> None:
        with ExitStack() as sessions, _coding(self._target_endpoint, Side.TARGET, "target"):
            meta.enter_phase(self._target(sessions), *self._who, epoch, Phase.FINISHED, lambda session: None)


def _lowest(found: tuple[Checkpoint, ...]) -> SourcePosition:
    """Where the stream must be able to begin again."""
    if len({item.relay_id for item in found}) == 1:
        return min(found, key=lambda item: item.offset).position
    return lowest_position([item.position for item in found])


@contextmanager
def _coding(endpoint: Endpoint, side: Side, name: str) -> Generator[None]:
    """Server errors of the block leave as coded errors of this endpoint."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise coded(error, endpoint, side, name) from error
