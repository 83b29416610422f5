"""Brings joining tables up to date: a snapshot in parallel with the subtask's stream, then a short stream of their own.

Until the subtask's lanes take them over, the joining tables' rows are written by their own lanes, under the
checkpoints of stream JOIN; the subtask's lanes ignore them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

from shardmerge.proto import errors, failpoints, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, Side, coded_errors, connect
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import PartialCopy
from shardmerge.worker.ddl.driver import SharedByStreams, StatementDriver
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.serve.locate import GroupEnds
from shardmerge.worker.relay.source_clock import SourceClock
from shardmerge.worker.replicate.alignment import StreamAlignment, StreamRole
from shardmerge.worker.replicate.bounds.stream_start import stream_start
from shardmerge.worker.replicate.join.stream_state import joining_after, stream_tables
from shardmerge.worker.replicate.join.subtask_end import SubtaskEnd
from shardmerge.worker.replicate.running import LaneRegistry
from shardmerge.worker.replicate.unit import ReplicateUnit, StartState, first_checkpoints, translate_checkpoints
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.snapshot.chunk_store import SnapshotStore, read_handover
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.snapshot.unit import SnapshotUnit, interrupted_copies_of
from shardmerge.worker.target.members.merged_targets import MergedTargets
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import ddl_progress, subtask_record
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.records.history.interrupted_copies import InterruptedCopy
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.tables.deferred_index import Defer
from shardmerge.worker.target.tables.make_targets import make_plans, unchecked_plans
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, ProcessUnit, Stopped
from shardmerge.worker.unit.run_context import RunContext

T = TypeVar("T")

_LOCATE_SECONDS = 600.0
_ANSWER_SECONDS = 300.0
_NEAR_BYTES = 1 << 20
"""The joining lanes are near the head with less to apply: that takes less time than aligning the lanes."""


class JoinPhase(enum.Enum):
    """The phase of a table join, as `query-status` shows it."""

    STARTING = "starting"
    COPYING = "copying"
    FOLLOWING = "following"


@dataclass(frozen=True, slots=True)
class _JoinStream:
    """The joining tables' running stream: its driver, what their chunks hold, where their lanes began."""

    driver: StatementDriver
    handover: Handover | None
    found: tuple[Checkpoint, ...]


@dataclass(frozen=True, slots=True)
class SharedByJoins:
    """What every table join of one run of a subtask uses. ``alignment``: shared with the subtask's own lanes. ``ddl``:
    its queue takes the tables that leave the stream. ``end``: of both streams."""

    registry: LaneRegistry
    clock: SourceClock
    alignment: StreamAlignment
    ddl: SharedByStreams
    end: SubtaskEnd | None


class TableJoin:
    """The join of one set of tables in one run of the subtask. :meth:`run` may be called again after a failure.

    ``context``: of the run, with the rules under which the tables are copied.
    """

    def __init__(
        self,
        context: RunContext,
        joining: Joining,
        shared: SharedByJoins,
        watch_indexes: Callable[[Iterable[TargetTable]], None] = lambda _: None,
    ) -> None:
        """``watch_indexes``: gets the targets whose indexes may wait for the load that begins."""
        self._watch_indexes = watch_indexes
        self._shared = shared
        self._context = context
        self._joining = joining
        self.names: frozenset[TableName] = joining.names(context.tables)
        self._phase = JoinPhase.STARTING
        self._unit: ProcessUnit | None = None
        self._begin: RelayOffset | None = None
        self._stream: _JoinStream | None = None

    def run(self, stop: StopSignal) -> Outcome:
        """Copy the tables, then follow their changes until ``stop``. Raises only programming errors."""
        try:
            return self._run(stop)
        except ShardmergeError as error:
            return Stopped() if stop.is_set else Failed(error)

    def _run(self, stop: StopSignal) -> Outcome:
        self._phase = JoinPhase.STARTING
        if self._stream is not None:  # statements may have run since
            self._context = replace(self._context, tables=self._stream.driver.tables.tables)
            self._joining, self._stream = self.joining, None
        joining = self._joining
        found = self.checkpoints()
        loads = not found and not self._joining.replays
        made = joining_plans(self._context, joining.numbers, joining.partitioning.one_lane, loads=loads)
        plans = joining.partitioning.apply_may_lack_rows(made)
        if loads:
            self._watch_indexes(plan.target for plan in plans)
            relay = self._context.relay
            if self._begin is None:
                self._begin = relay.locate(self._joining.start, _LOCATE_SECONDS, stop)
            self._phase = JoinPhase.COPYING
            failpoints.hit("join.copying")
            unit = SnapshotUnit(self._context, plans, dict.fromkeys(joining.numbers, joining.start), self._scope)
            outcome = self._run_unit(unit, stop)
            if not isinstance(outcome, Finished):
                return outcome
            found = self._begin_stream(plans, interrupted_copies_of(unit.interrupted, plans), stop)
        copies = self._at_target(lambda session: interrupted_copies.read(session, self._context.who, joining.numbers))
        with self._context.relay.one_generation() as relay_id:
            handover = self._handover(plans, copies, stop, replicating=True)
            entries = self._entry_offsets(stop)
            skips_to = self._skips_to(stop)
            partial_copies = locate_copies(self._context.relay, copies, stop)
        if stop.is_set:
            return Stopped()
        if self._shared.end is not None:
            furthest = max(item.offset for item in translate_checkpoints(self._context.relay, found, stop))
            check = self._shared.end.checker([f"{schema}.{table}" for schema, table in self.names])
            check(furthest if handover is None else max(furthest, handover.done_at))
        driver = self._driver(plans, handover, entries, partial_copies, relay_id, skips_to)
        self._stream = _JoinStream(driver, handover, found)
        self._phase = JoinPhase.FOLLOWING
        return self._run_unit(self._lanes(self._stream), stop)

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the joining tables."""
        return self._joining.numbers

    @property
    def replays(self) -> bool:
        """Whether the tables' history is already at the target: they were parked at a sharding DDL."""
        return self._joining.replays

    @property
    def joining(self) -> Joining:
        """The join as it is recorded now."""
        stream = self._stream
        if stream is None:
            return self._joining
        return joining_after(self._joining, stream.driver.tables)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The checkpoints of the joining tables' lanes, read from the target."""
        return self._at_target(lambda session: checkpoints.read_all(session, self._context.who, Stream.JOIN))

    @property
    def lanes(self) -> ReplicateUnit | None:
        """The joining tables' lanes; None before they run."""
        return self._unit if isinstance(self._unit, ReplicateUnit) else None

    @property
    def stream_tables(self) -> StreamTables:
        """The tables of the joining stream at its present place. Only once its lanes have run."""
        assert self._stream is not None  # noqa: S101 - for the type checker
        return self._stream.driver.tables

    @property
    def cleared_shards(self) -> frozenset[int]:
        """The tables whose watermarks the lanes have cleared, once :meth:`is_near` has been true."""
        stream = self._stream
        return frozenset() if stream is None or stream.handover is None else stream.handover.shards

    def lowest(self) -> RelayOffset | None:
        """The lowest offset that may be needed again; None while unknown (nothing may be purged)."""
        unit = self._unit
        return unit.lowest() if isinstance(unit, ReplicateUnit) else self._begin

    def is_near(self) -> bool:
        """Whether the tables are copied and their lanes are close enough to the relay's head to be taken over."""
        unit, stream = self._unit, self._stream
        if stream is None or not isinstance(unit, ReplicateUnit):
            return False
        lowest = unit.lowest()
        if lowest is None or (stream.handover is not None and lowest < stream.handover.done_at):
            return False
        if not stream.driver.tables.is_whole_at(lowest):
            return False
        relay = self._context.relay
        return relay.bytes_between(lowest, relay.head().offset) <= _NEAR_BYTES

    def status(self) -> worker_pb2.JoinStatus:
        """For query-status."""
        status = worker_pb2.JoinStatus(
            tables=sorted(f"{schema}.{table}" for schema, table in self.names), phase=self._phase.value
        )
        unit = self._unit
        match None if unit is None else unit.status():
            case worker_pb2.LoadStatus() as load:
                status.load.CopyFrom(load)
            case worker_pb2.SyncStatus() as sync:
                status.bytes_behind, status.unknown = sync.bytes_behind, sync.unknown
            case None:
                pass
        return status

    # --- parts

    def _run_unit(self, unit: ProcessUnit, stop: StopSignal) -> Outcome:
        self._unit = unit
        return unit.run(stop)

    @property
    def _scope(self) -> TableScope:
        return TableScope(self._context.rules, only=self.names)

    def _lanes(self, stream: _JoinStream) -> ReplicateUnit:
        state, end = stream.driver.tables, self._shared.end
        return ReplicateUnit(
            replace(self._context, tables=state.tables),
            self._shared.registry,
            stream.handover,
            self._shared.clock,
            StartState(stream.found, state.partitioning, end=None if end is None else end.limit),
            stream.driver,
            StreamRole(Stream.JOIN, self._shared.alignment),
        )

    def _entry_offsets(self, stop: StopSignal) -> dict[int, RelayOffset]:
        """The ends of the statements after which tables enter the stream, by number, in the current relay log."""
        found: dict[int, RelayOffset] = {}
        ends = GroupEnds()  # the entries are in the order of their places
        for entry in self._joining.entries:
            if stop.is_set:
                break
            begin = self._context.relay.locate(entry.place.position, _LOCATE_SECONDS, stop, ends=ends)
            found[entry.number] = _end_of_group(self._context.relay, begin)
        return found

    def _skips_to(self, stop: StopSignal) -> RelayOffset | None:
        """The end of the last statement that the stream skips, in the current relay log; None: it skips none."""
        place = self._joining.skips
        if place is None or stop.is_set:
            return None
        return _end_of_group(self._context.relay, self._context.relay.locate(place.position, _LOCATE_SECONDS, stop))

    def _driver(
        self,
        plans: tuple[TablePlan, ...],
        handover: Handover | None,
        entries: Mapping[int, RelayOffset],
        copies: Mapping[int, PartialCopy],
        relay_id: str,
        skips_to: RelayOffset | None,
    ) -> StatementDriver:
        joining = self._joining
        by_number = {plan.shard: plan for plan in plans}

        def columns(state: StreamTables) -> Mapping[str, str]:
            return {"joining": joining_after(joining, state).to_json()}

        state = stream_tables(joining, self._context.rules, self._context.tables, by_number, entries, copies)
        copied_until = handover.copied_until() if handover is not None else {}
        return StatementDriver(
            self._context,
            Stream.JOIN,
            state,
            self._shared.ddl,
            columns,
            copied_until,
            relay_id=relay_id,
            executed_to=skips_to,
        )

    def _handover(
        self,
        plans: tuple[TablePlan, ...],
        copies: Mapping[int, InterruptedCopy],
        stop: StopSignal,
        *,
        replicating: bool,
    ) -> Handover | None:
        context = self._context
        return self._at_target(
            lambda session: read_handover(
                session,
                self._context.who,
                plans,
                context.relay,
                context.source_endpoint,
                stop,
                replicating=replicating,
                interrupted={number: copy.place for number, copy in copies.items()},
            )
        )

    def _begin_stream(
        self, plans: tuple[TablePlan, ...], copies: Mapping[int, InterruptedCopy], stop: StopSignal
    ) -> tuple[Checkpoint, ...]:
        """Record where the stream starts: checkpoints and records in one transaction."""
        context = self._context
        with context.relay.one_generation() as relay_id:
            handover = self._handover(plans, copies, stop, replicating=False)
            assert handover is not None  # noqa: S101 - the tables have been copied: their chunks are recorded
            begin = context.relay.locate(self._joining.start, _LOCATE_SECONDS, stop)
            offset = stream_start(context.relay, self._scope, begin, handover)
        lanes = context.lanes_for_joins()
        one_lane = frozenset(plan.target_name for plan in plans if plan.one_lane)
        may_lack_rows = frozenset(plan.shard for plan in plans if plan.may_lack_rows)
        partitioning = replace(self._joining.partitioning, lanes=lanes, one_lane=one_lane, may_lack_rows=may_lack_rows)
        joining = replace(self._joining, partitioning=partitioning)
        first = first_checkpoints(lanes, context.epoch, relay_id, context.relay.position_at(offset), offset)
        failpoints.hit("join.before_stream")

        def insert(session: Session) -> None:
            checkpoints.insert(session, self._context.who, first, Stream.JOIN)
            interrupted_copies.write(session, self._context.who, copies)

        self._at_target(
            lambda session: subtask_record.record_joining(
                session, self._context.who, context.epoch, joining.to_json(), insert
            )
        )
        failpoints.hit("join.stream")
        self._joining = joining
        return first

    def _at_target(self, work: Callable[[Session], T]) -> T:
        # A longer timeout than elsewhere: the hand-over reads the records of all chunks at once.
        return self._context.at_target(work, seconds=_ANSWER_SECONDS)


def locate_copies(relay: Relay, copies: Mapping[int, InterruptedCopy], stop: StopSignal) -> dict[int, PartialCopy]:
    """The recorded interrupted copies, by number, with offsets in the current relay log."""
    ends = GroupEnds()
    ordered = sorted(copies.items(), key=lambda pair: pair[1].place.position.file_order())
    return {
        number: PartialCopy(copy.number, relay.locate(copy.place.position, _LOCATE_SECONDS, stop, ends=ends))
        for number, copy in ordered
    }


def _end_of_group(relay: Relay, begin: RelayOffset) -> RelayOffset:
    """The end of the group of a statement that begins at ``begin``."""
    statement = next(relay.statements_from(begin), None)
    if statement is None or statement.group_start != begin:
        raise errors.worker.INTERNAL(
            kind="no statement", where=f"relay offset {begin}", reason="a table enters its stream there"
        )
    return statement.group_end


def joining_plans(
    context: RunContext, numbers: frozenset[int], one_lane: frozenset[str] = frozenset(), *, loads: bool = False
) -> tuple[TablePlan, ...]:
    """The plans of these tables, by number; every target table is created or checked. ``loads``: their load begins, for
    which indexes of existing tables may be dropped. ``one_lane``: see :func:`unchecked_plans`. Raises what
    :func:`make_plans` raises."""
    config = context.config
    defer = Defer.of(config.load)
    if defer is Defer.EMPTY and not loads:
        defer = Defer.CREATED
    endpoint, source_id = context.source_endpoint, config.source_id
    with (
        closing(connect(endpoint, Side.SOURCE, name=source_id, read_timeout=_ANSWER_SECONDS)) as source,
        closing(connect(context.target_endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as target,
        coded_errors(endpoint, Side.SOURCE, source_id),
    ):
        with coded_errors(context.target_endpoint, Side.TARGET, "target"):
            if ddl_progress.has_begun_statement(target, context.who):
                return unchecked_plans(context.rules, source_id, context.tables, target, numbers, one_lane)
            creations = ddl_progress.read_creations(target, context.who, numbers)
        return make_plans(
            context.rules,
            source_id,
            context.tables,
            source,
            target,
            MergedTargets(context.who, context.epoch, context.members, found="when tables join"),
            config.meta_schema,
            numbers,
            defer=defer,
            after_load=True,
            recorded=creations,
        )


def drop_joining(session: Session, who: SubtaskKey, epoch: int, joining: Joining, left: Joining | None) -> None:
    """Record that only ``left`` of ``joining`` joins (None: nothing). Raises ``pymysql.MySQLError`` and FENCED."""
    found = checkpoints.read_all(session, who, Stream.JOIN) if left is None else ()
    store = SnapshotStore(who, epoch)
    dropped = joining.partitioning.shards - (left.partitioning.shards if left is not None else frozenset())

    def forget(session: Session) -> None:
        # Nothing waits for their chunks that are not loaded.
        store.forget(session, dropped)
        if found:
            checkpoints.remove(session, who, found, Stream.JOIN)

    subtask_record.record_joining(session, who, epoch, left.to_json() if left is not None else "", forget)
