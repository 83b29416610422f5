"""One run of a subtask under one epoch: takes over at the target, then unit after unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Protocol

from proto import config_pb2, errors, hooks
from proto.config import defaults
from proto.errors import ShardmergeError
from proto.log import get_logger
from proto.state_pb2 import BinlogOp
from worker import bounds, ends, meta
from worker.bounds import Bound
from worker.connection import Endpoint, Session, Side, coding, connect, current_position, server_info
from worker.context import SubTaskContext, who_of
from worker.ddl import parked as parked_tables
from worker.ddl import records as ddl_records
from worker.ddl.agent import ShardAgent
from worker.ddl.creation import Creation
from worker.ddl.driver import StatementDriver
from worker.ddl.parked import Parked
from worker.ddl.passing import TablesStanding, plans_by_number
from worker.ddl.recorded import read_forgotten
from worker.ddl.tables import TableScope
from worker.ddl.waiting import WaitingTables
from worker.ddl.widen import Widening
from worker.deferred.adder import IndexAdder
from worker.ended import EndedUnit, load_report
from worker.host import Host
from worker.join.join import TableJoin
from worker.join.released import ReleasedTables
from worker.join.standing import others_of, own_shards
from worker.join.unit import NOBODY, JoiningUnit
from worker.join.update import Update
from worker.meta import Phase, SubTaskRow
from worker.plan import TablePlan
from worker.plans import make_plans, read_described, recorded_plans
from worker.position import SourcePosition
from worker.relay.order import configured_start, lowest_position
from worker.replicate import checkpoint as checkpoints
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.dealing import Dealing, dealing_of
from worker.replicate.meeting import Meeting
from worker.replicate.stream import Stream
from worker.replicate.unit import Part, ReplicateUnit, Standing, first_checkpoints
from worker.rules import Rules
from worker.snapshot.handover import Handover
from worker.snapshot.store import SnapshotStore, read_handover
from worker.snapshot.unit import SnapshotUnit
from worker.start_at import Begin, check_keys, tells_commit_times
from worker.stop_at import Ending
from worker.table import Table
from worker.unit import Failed, Finished, Outcome, ProcessUnit, Stopped, StopSignal

log = get_logger()

_LOCATE_SECONDS = 600.0
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


class SubTaskRun:
    """Made for one run, used by one thread."""

    def __init__(
        self,
        config: config_pb2.SubTaskConfig,
        meta_token: str,
        update_token: str,
        host: Host,
        owner: Owner,
    ) -> None:
        self._config = config
        self._meta_token = meta_token
        self._update_token = update_token
        self._host = host
        self._owner = owner
        self._source_id = host.source.source_id
        self._who = who_of(config)
        self._source_endpoint = Endpoint.from_proto(getattr(host.source, "from"))
        self._target_endpoint = Endpoint.from_proto(config.target)

    def run(self, stop: StopSignal) -> Outcome:
        """Until finished, stopped or failed; raises nothing but programming errors."""
        try:
            return self._run(stop)
        except ShardmergeError as error:
            return Failed(error)

    def _run(self, stop: StopSignal) -> Outcome:
        rules = Rules.from_config(self._config)
        with ExitStack() as sessions:
            target = self._target(sessions)
            epoch = self._host.epochs.acquire(self._config.task, self._source_id)
            self._owner.epoch_acquired(epoch)
            with coding(self._target_endpoint, Side.TARGET, "target"):
                meta.ensure_meta(target, self._config.meta_schema)
                row = meta.take_over(target, *self._who, epoch, self._meta_token)
            phase = row.phase
            if phase is Phase.FINISHED:
                ended = self._ended(target, epoch)
                if ended is not None:
                    return ended
                phase = Phase.REPLICATE
            self._host.relay.start()  # again, after an error that an operator had to mend
            self._owner.phase_known(fresh=phase is Phase.NEW)
            source = self._source(sessions)
            ending = self._ending(source, target, epoch, phase)
            if phase is Phase.NEW or row.start is None:
                self._begin(source, target, rules, epoch, stop)
                self._owner.phase_known(fresh=False)
        while True:
            row = self._row()
            match row.phase:
                case Phase.SNAPSHOT:
                    outcome = self._copy(rules, epoch, row, stop)
                case Phase.REPLICATE:
                    outcome = self._replicate(rules, epoch, row, ending, stop)
                case _:
                    return Finished()
            if outcome is not None:
                return outcome

    def _copy(self, rules: Rules, epoch: int, row: SubTaskRow, stop: StopSignal) -> Outcome | None:
        """The snapshot, by the rules under which it began. None: the next phase is entered."""
        config, relay = self._config, self._host.relay
        assert row.start is not None  # noqa: S101 - for the type checker: written with the phase
        with ExitStack() as sessions:
            target, source = self._target(sessions), self._source(sessions)
            with coding(self._target_endpoint, Side.TARGET, "target"):
                tables = meta.read_tables(target, *self._who)
            dealing = Dealing.from_json(row.dealing)
            if dealing is not None:
                rules = dealing.compiled_rules()
            shards = dealing.shards if dealing is not None else None
            widen = self._widening(target, epoch, stop)
            plans = self._plans(rules, tables, source, target, shards, defer=config.load.defer_indexes, widen=widen)
            if dealing is None:
                # Before the first chunk: rows are at the target by these rules, whatever the task file says later.
                dealing = dealing_of(config, self._lanes, plans)
                with coding(self._target_endpoint, Side.TARGET, "target"):
                    meta.deal_anew(target, *self._who, epoch, dealing.to_json(), lambda session: None)
        # Before any offset is asked of the relay: at a worker that is new to the source it has not begun.
        relay.ensure_from(row.start)
        outcome = self._run_unit(SnapshotUnit(self._context(rules, epoch, tables), plans), stop)
        if not isinstance(outcome, Finished):
            return outcome
        if config.mode == config_pb2.TASK_MODE_FULL:
            self._adder(plans).add(stop)
            if stop.is_set:
                return Stopped()
            self._finish(epoch)
            with ExitStack() as sessions:
                return self._ended(self._target(sessions), epoch) or Finished()
        with relay.one_generation() as relay_id:
            handover = self._handover(plans, stop, replicating=False)
        hooks.reach("handover")
        self._enter_replicate(epoch, row.start, handover, relay_id, dealing.lanes, stop)
        return Stopped() if stop.is_set else None

    def _replicate(self, rules: Rules, epoch: int, row: SubTaskRow, ending: Ending, stop: StopSignal) -> Outcome:
        """The stream, and tables that join it."""
        config, host, dealing = self._config, self._host, Dealing.from_json(row.dealing)
        with ExitStack() as sessions:
            target, source = self._target(sessions), self._source(sessions)
            read_forgotten(source, target, config, epoch, (self._source_endpoint, self._target_endpoint))
            with coding(self._target_endpoint, Side.TARGET, "target"):
                # Nobody else moves them: the epoch is ours.
                found = checkpoints.read_begun(target, *self._who)
                tables = meta.read_tables(target, *self._who)
                parked = parked_tables.read(target, *self._who)
            joining = None
            if dealing is not None:
                update = self._update(rules, epoch)
                joining, tables = update.joining(source, target, row, dealing.with_tables(parked), tables)
                parked = update.still_waiting(target, dealing, tables, parked)
            with coding(self._target_endpoint, Side.TARGET, "target"):
                # A target that is missing is to fit the rows to come, whatever the source has by now.
                creations = ddl_records.read_creations(target, *self._who)
            others = others_of(tables, joining, parked)
            shards = own_shards(tables, dealing, others) if dealing is not None else None
            if dealing is not None and shards is not None and self._is_begun(target):
                # The target may be as it is behind the statement already: it is looked at there.
                plans = recorded_plans(rules, self._source_id, tables, shards, dealing.one_lane)
            else:
                plans = self._plans(rules, tables, source, target, shards, recorded=creations)
        starts = [*([joining.start] if joining is not None else []), *(item.behind for item in parked.values())]
        host.relay.ensure_from(_lowest([_lowest_of(found), *starts]))
        # The chunks' marks of every table whose rows the lanes may still meet, by the rules they were dealt by.
        marked = dealing.plans(self._source_id, tables) if dealing is not None else plans
        with host.relay.one_generation():
            handover = self._handover(marked, stop, replicating=True)
        if stop.is_set:
            return Stopped()
        settled = self._settled()

        context = self._context(rules, epoch, tables)
        wanted = dealing_of(config, self._lanes, plans)
        begin = TablesStanding(tables, plans_by_number(plans), wanted, TableScope(rules, others))
        waiting = self._waiting(parked, stop)
        driver = StatementDriver(context, Stream.MAIN, begin, waiting=waiting, ops=self._owner.binlog_ops)
        meeting = Meeting(lambda: host.relay.head().offset)
        lanes = ReplicateUnit(
            context,
            host.service,
            plans,
            handover,
            host.clock.position,
            Standing(found, dealing, settled, ending),
            driver,
            Part(Stream.MAIN, meeting),
        )
        if joining is None and waiting is None:
            with self._adder(plans).beside(stop):
                outcome = self._run_unit(lanes, stop)
            return self._reached(epoch, ending) if isinstance(outcome, Finished) else outcome
        if joining is not None and ending.stop is not None:
            raise errors.replicate.UPDATE_OF_ENDING(
                task=self._config.task, source=self._source_id, stop=ending.stop.shown
            )
        join, come = None, tuple[TablePlan, ...]()
        if joining is not None:
            own = self._context(joining.dealing.compiled_rules(), epoch, tables)
            join = TableJoin(own, host.service, host.clock.position, joining, meeting, waiting, self._owner.binlog_ops)
            come = joining.dealing.plans(self._source_id, tables)
        with ExitStack() as beside:
            beside.enter_context(self._adder((*plans, *come)).beside(stop))
            coming = NOBODY
            if waiting is not None:
                agent = ShardAgent(context, host.shards, waiting)
                beside.enter_context(agent.beside(stop))
                coming = ReleasedTables(
                    context, host.service, host.clock.position, meeting, waiting, agent, self._owner.binlog_ops
                )
            outcome = self._run_unit(JoiningUnit(context, lanes, driver, meeting, join, coming), stop)
        return self._reached(epoch, ending) if isinstance(outcome, Finished) else outcome

    def _waiting(self, parked: Mapping[int, Parked], stop: StopSignal) -> WaitingTables | None:
        """The shard tables that wait before sharding DDLs; None without a shard-mode, once none waits any more."""
        if self._config.shard_mode == config_pb2.SHARD_MODE_NONE and not parked:
            return None
        waiting = WaitingTables()
        for number, item in parked.items():
            waiting.park({number: item}, self._host.relay.locate(item.behind, _LOCATE_SECONDS, stop))
        return waiting

    def _plans(
        self,
        rules: Rules,
        tables: tuple[Table, ...],
        source: Session,
        target: Session,
        shards: frozenset[int] | None,
        *,
        defer: bool = False,
        widen: Callable[[TablePlan], None] | None = None,
        recorded: Mapping[int, Creation] = MappingProxyType({}),
    ) -> tuple[TablePlan, ...]:
        """``defer``: the tables' rows are loaded now; those of a stream alone have their indexes from the start."""
        with coding(self._source_endpoint, Side.SOURCE, self._source_id):
            return make_plans(
                rules,
                self._source_id,
                tables,
                source,
                target,
                self._config.meta_schema,
                shards,
                defer=defer,
                widen=widen,
                recorded=recorded,
            )

    def _widening(self, target: Session, epoch: int, stop: StopSignal) -> Callable[[TablePlan], None] | None:
        """Under the optimistic mode: lets a target take the columns of a shard table that comes to it."""
        if self._config.shard_mode != config_pb2.SHARD_MODE_OPTIMISTIC:
            return None
        with coding(self._target_endpoint, Side.TARGET, "target"):
            creations = ddl_records.read_creations(target, *self._who)
        widening = Widening(target, self._who, epoch, stop)

        def widen(plan: TablePlan) -> None:
            if plan.shard in creations:
                with coding(self._target_endpoint, Side.TARGET, "target"):
                    widening(plan, creations[plan.shard])

        return widen

    def _is_begun(self, target: Session) -> bool:
        with coding(self._target_endpoint, Side.TARGET, "target"):
            return ddl_records.is_begun(target, *self._who)

    def _update(self, rules: Rules, epoch: int) -> Update:
        return Update(
            self._config,
            self._update_token,
            epoch,
            rules,
            self._lanes,
            self._source_endpoint,
            self._target_endpoint,
        )

    def _adder(self, plans: tuple[TablePlan, ...]) -> IndexAdder:
        """Of the secondary indexes that the target tables still lack after their load."""
        config = self._config
        adder = IndexAdder(
            self._target_endpoint, config.meta_schema, config.task, plans, patient=config.load.defer_indexes
        )
        self._owner.works_beside(adder.doing)
        return adder

    def _row(self) -> SubTaskRow:
        with ExitStack() as sessions, coding(self._target_endpoint, Side.TARGET, "target"):
            row = meta.read_row(self._target(sessions), *self._who)
        assert row is not None  # noqa: S101 - for the type checker: it was taken over
        return row

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

    def _begin(self, source: Session, target: Session, rules: Rules, epoch: int, stop: StopSignal) -> None:
        """Leave phase NEW. The relay reaches back to ``start`` before anything else happens, so no
        change after it can be missed."""
        config = self._config
        incremental = config.mode == config_pb2.TASK_MODE_INCREMENTAL
        with coding(self._source_endpoint, Side.SOURCE, self._source_id):
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
            tables, creations = read_described(source, rules, self._source_id)
            if settled is not None:
                check_keys(self._source_id, config.start_at.time, tables)
        phase = Phase.REPLICATE if incremental else Phase.SNAPSHOT
        first: tuple[Checkpoint, ...] = ()
        if incremental:
            first = self._first_checkpoints(epoch, start, self._lanes, stop)
            start = first[0].position
        with coding(self._target_endpoint, Side.TARGET, "target"):
            meta.begin(
                target,
                *self._who,
                epoch,
                phase,
                start,
                tables,
                lambda session: self._insert_first(session, first, settled, dict(enumerate(creations))),
            )

    def _insert_first(
        self,
        session: Session,
        first: tuple[Checkpoint, ...],
        settled: SourcePosition | None,
        creations: Mapping[int, Creation],
    ) -> None:
        checkpoints.insert(session, *self._who, first)
        ddl_records.write_creations(session, *self._who, creations)
        if settled is not None:
            bounds.write(session, *self._who, Bound(bounds.Kind.SETTLED, self._config.start_at.time, settled, 0.0))

    @property
    def _lanes(self) -> int:
        return self._config.replicate.lanes or defaults.LANES

    def _handover(self, plans: tuple[TablePlan, ...], stop: StopSignal, *, replicating: bool) -> Handover | None:
        """The chunks' high watermarks as offsets of the relay at hand; None when there was no snapshot."""
        with ExitStack() as sessions:
            target = self._target(sessions)
            with coding(self._target_endpoint, Side.TARGET, "target"):
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
        self,
        epoch: int,
        start: SourcePosition,
        handover: Handover | None,
        relay_id: str,
        lanes: int,
        stop: StopSignal,
    ) -> None:
        """The stream starts at the lowest high watermark; checkpoints and phase change in one transaction."""
        if handover is None:
            first = self._first_checkpoints(epoch, start, lanes, stop)
        else:
            _, offset = handover.lowest
            first = first_checkpoints(lanes, epoch, relay_id, self._host.relay.position_at(offset), offset)
        with ExitStack() as sessions, coding(self._target_endpoint, Side.TARGET, "target"):
            target = self._target(sessions)
            meta.enter_phase(
                target,
                *self._who,
                epoch,
                Phase.REPLICATE,
                lambda session: checkpoints.insert(session, *self._who, first),
            )

    def _first_checkpoints(
        self, epoch: int, start: SourcePosition, lanes: int, stop: StopSignal
    ) -> tuple[Checkpoint, ...]:
        with self._host.relay.one_generation() as relay_id:
            offset = self._host.relay.locate(start, _LOCATE_SECONDS, stop)
            # As the relay knows it, its GTID set included: what the source told of that was read a moment apart.
            position = self._host.relay.position_at(offset)
        return first_checkpoints(lanes, epoch, relay_id, position, offset)

    def _ended(self, target: Session, epoch: int) -> Outcome | None:
        """Nothing is left to do: the records say what it came to, and neither source nor relay log is needed.

        None: it has ended where it no longer is to end, and goes on.
        """
        config = self._config
        with coding(self._target_endpoint, Side.TARGET, "target"):
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
        with ExitStack() as sessions, coding(self._target_endpoint, Side.TARGET, "target"):
            target = self._target(sessions)
            bound = ends.reached(stop, checkpoints.read_begun(target, *self._who))
            self._enter(target, epoch, Phase.FINISHED, lambda session: bounds.write(session, *self._who, bound))
            return self._ended(target, epoch) or Finished()

    def _settled(self) -> Bound | None:
        """Before which place the target may hold changes already; None: it holds none."""
        with ExitStack() as sessions, coding(self._target_endpoint, Side.TARGET, "target"):
            return bounds.read(self._target(sessions), *self._who).get(bounds.Kind.SETTLED)

    def _ending(self, source: Session, target: Session, epoch: int, phase: Phase) -> Ending:
        """Where it is to end."""
        config, host = self._config, self._host
        with coding(self._target_endpoint, Side.TARGET, "target"):
            recorded = bounds.read(target, *self._who)
        with coding(self._source_endpoint, Side.SOURCE, self._source_id):
            info = server_info(source)
            stop = ends.understood(config, source, info, recorded.get(bounds.Kind.STOP))
            if stop is not None and phase is Phase.NEW and ends.begins_now(config):
                ends.check_ahead(config, stop, source, info)
        if stop is not None and stop.bound != recorded.get(bounds.Kind.STOP):
            bound = stop.bound
            with coding(self._target_endpoint, Side.TARGET, "target"):
                self._enter(target, epoch, phase, lambda session: bounds.write(session, *self._who, bound))
        exact = tells_commit_times(info)
        return Ending(config.task, self._source_id, host.relay, stop, host.clock.end, exact)

    def _enter(self, target: Session, epoch: int, phase: Phase, also: Callable[[Session], None]) -> None:
        meta.enter_phase(target, *self._who, epoch, phase, also)

    def _finish(self, epoch: int) -> None:
        with ExitStack() as sessions, coding(self._target_endpoint, Side.TARGET, "target"):
            meta.enter_phase(self._target(sessions), *self._who, epoch, Phase.FINISHED, lambda session: None)


def _lowest_of(found: tuple[Checkpoint, ...]) -> SourcePosition:
    """Where the stream must be able to begin again."""
    if len({item.relay_id for item in found}) == 1:
        return min(found, key=lambda item: item.offset).position
    return lowest_position([item.position for item in found])


def _lowest(positions: list[SourcePosition]) -> SourcePosition:
    return positions[0] if len(positions) == 1 else lowest_position(positions)
