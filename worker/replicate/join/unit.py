"""Runs a subtask's own lanes and, in parallel, the tables that are joining them, until one stream remains.

    own lanes     ═══════════════════════════════════════════════════════╗ wait ══╦═ continue, with the tables
    joining       snapshot ── own stream ── near ── up to the same offset ╝ wait ══╝  adopted: one transaction

The alignment is at a group end that no lane of either stream has passed. When all lanes wait there, one target
transaction removes the joining tables' checkpoints and adds their tables to the own lanes' partitioning: every event of
a joining table is applied by its own stream before that offset, and by the subtask's lanes after it (I5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shardmerge.proto import errors, failpoints, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import Backoff
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.ddl.driver import StatementDriver
from shardmerge.worker.replicate.alignment import StreamAlignment
from shardmerge.worker.replicate.join.stream_state import is_after_statements, is_one_place
from shardmerge.worker.replicate.join.subtask_end import SubtaskEnd
from shardmerge.worker.replicate.join.table_join import TableJoin
from shardmerge.worker.replicate.unit import ReplicateUnit
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import ddl_progress as ddl_records
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.history import passed_watermarks as passed_marks
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.subtask_record import SubTaskRow
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, Stopped
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_LOOK_SECONDS = 0.1
_JOIN_LOOK_SECONDS = 0.02
"""While tables join: their rows wait for the end of it."""
_BACKOFF = Backoff(1.0, 60.0)
_UPDATE_WAITS = "a further update begins when these tables have joined"
_ENDS_WHEN_WHOLE = "task-mode full: ends when the tables whose copy a statement has interrupted are complete"


class _Running:
    """A unit's run in a thread of its own."""

    def __init__(self, name: str, run: Callable[[StopSignal], Outcome], stop: StopSignal) -> None:
        self.stop = stop
        self._over = threading.Event()
        self._outcome: Outcome | None = None
        self._thread = threading.Thread(target=self._go, args=(run,), name=name, daemon=True)
        self._thread.start()

    def _go(self, run: Callable[[StopSignal], Outcome]) -> None:
        try:
            self._outcome = run(self.stop)
        except Exception as error:
            log.exception("unexpected error in a run")
            self._outcome = Failed(
                errors.worker.INTERNAL(kind=type(error).__name__, where=self._thread.name, reason=error)
            )
        finally:
            self._over.set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether it is over within ``seconds``."""
        return self._over.wait(seconds)

    def outcome(self) -> Outcome:
        """Wait for the outcome."""
        self._over.wait()
        return self._outcome or Stopped()


@dataclass(frozen=True, slots=True)
class _AlignedState:
    """The records of both streams while they are aligned. ``executed``: the last statement of each stream."""

    own: tuple[Checkpoint, ...]
    joined: tuple[Checkpoint, ...]
    row: SubTaskRow | None
    executed: tuple[StatementPlace | None, ...]


class TableSource(Protocol):
    """Supplies tables that have to join while the subtask runs."""

    def next(self) -> TableJoin | None:
        """The tables that have to join now; None: none. Raises coded errors."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait up to ``seconds`` until :meth:`next` may have tables."""
        ...

    def check(self) -> None:
        """Raise the coded error because of which no further tables come until an operator has decided."""
        ...

    def confirm_taken(self, join: TableJoin) -> None:
        """The caller of :meth:`next` now keeps ``join``'s tables: they are no longer counted here."""
        ...

    def lowest(self) -> RelayOffset | None:
        """The offset from which the pending tables need the relay log; None: they need none."""
        ...

    def activity(self) -> str:
        """What the pending tables wait for; "" for nothing."""
        ...

    def has_more(self) -> bool:
        """Whether tables are pending."""
        ...

    def copy_status(self) -> tuple[worker_pb2.JoinStatus, ...]:
        """The status of pending tables whose history is copied: the copy that runs, and each failure."""
        ...

    def retry(self) -> None:
        """An operator asks to try again what has failed."""
        ...


class JoiningUnit:
    """A :class:`shardmerge.worker.unit.contract.ProcessUnit`: a subtask's own lanes for as long as they run, and in
    parallel one set of joining tables after the other, until the own lanes have taken them over.

    A failure of the joining tables does not affect the subtask's lanes: these continue. The join is retried if its
    error is retryable; otherwise it waits for the operator.
    """

    def __init__(
        self,
        context: RunContext,
        main: ReplicateUnit,
        driver: StatementDriver,
        alignment: StreamAlignment,
        join: TableJoin | None,
        table_source: TableSource,
        *,
        ends_when_whole: bool = False,
        ends_when_joined: bool = False,
        end: SubtaskEnd | None = None,
    ) -> None:
        """``main``: the subtask's own lanes; ``driver``: theirs; ``alignment``: shared by both streams; ``join``: the
        tables that join first; ``ends_when_whole``: finish as soon as the own lanes have all tables at one place;
        ``ends_when_joined``: as soon as the tables of ``join`` have joined, because an update waits for them; ``end``:
        finish when all tables are there."""
        self._end = end
        self._ends_when_joined = ends_when_joined
        self._ends_when_whole = ends_when_whole
        self._table_source = table_source
        self._context = context
        self._main = main
        self._driver = driver
        self._alignment = alignment
        self._join = join
        self._error: ShardmergeError | None = None
        self._retry_at: float | None = None
        self._own_ended = False

    def run(self, stop: StopSignal) -> Outcome:
        own = _Running("own-lanes", self._main.run, stop.child())
        try:
            while not own.is_over:
                if self._join is None and (pending := self._next(own)) is not None:
                    # In this order, these tables are always counted here or there when another thread asks from where
                    # the relay log is needed or whether everything is applied.
                    self._join = pending
                    self._table_source.confirm_taken(pending)
                if self._join is not None:
                    if self._bring_in(self._join, own) and self._ends_when_joined:
                        return Finished()
                elif self._ends_when_whole and self._is_whole_at_one_place(own):
                    return Finished()
            outcome = own.outcome()
            return self._bring_to_end(stop) if isinstance(outcome, Finished) else outcome
        except ShardmergeError as error:
            return Stopped() if stop.is_set else Failed(error)
        finally:
            own.stop.set()
            own.outcome()

    def _next(self, own: _Running) -> TableJoin | None:
        """Wait for tables that have to join; None when ``own`` has ended before there were any, or when the unit may
        finish."""
        while not own.is_over:
            try:
                join = self._table_source.next()
            except ShardmergeError as error:
                if not error.spec.retryable:
                    raise
                log.warning("tables cannot join yet", task=self._context.config.task, error=str(error))
                own.wait(_BACKOFF.first)
                continue
            if join is not None or (self._ends_when_whole and self._is_whole()):
                return join
            self._table_source.wait(_LOOK_SECONDS)
        return None

    def _is_whole(self) -> bool:
        """Whether no table is copied in part, parked or joining."""
        # In this order, as in :meth:`status`: a table that leaves the stream is in the driver's tables until it is
        # pending.
        interrupted = bool(self._driver.tables.copies)
        away = self._table_source.has_more() or self._join is not None
        return not interrupted and not away and self._main.plans is not None

    def _is_whole_at_one_place(self, own: _Running) -> bool:
        """Align the own lanes. True: they have committed everything up to one place, where no table is away; they stay
        there."""
        failpoints.hit("whole.aligning")
        self._alignment.request()
        while not own.is_over:
            place = self._main.wait_aligned(_LOOK_SECONDS)
            if place is None:
                continue
            failpoints.hit("whole.aligned")
            if self._is_whole() and not self._driver.tables.at_barrier(place).later:
                return True
            # A statement before that place has parked a table, or one after it has already run.
            self._alignment.cancel()
            self._main.resume()
            break
        return False

    def _bring_in(self, join: TableJoin, own: _Running) -> bool:
        """Run the join until the tables have joined, or the subtask's own lanes have ended: False. Raises errors of the
        adoption."""
        failures = 0
        while not own.is_over:
            joining = _Running("joining", join.run, own.stop.child())
            try:
                while not joining.wait(_JOIN_LOOK_SECONDS) and not own.is_over:
                    self._table_source.check()
                    if join.is_near() and self._main.plans is not None:
                        failpoints.hit("join.near")
                        if self._align(join, own, joining):
                            self._join = None
                            return True
            finally:
                joining.stop.set()
                outcome = joining.outcome()
            match outcome:
                case Failed(error=error):
                    self._record_failure(error, failures, join)
                    failures += 1
                case Finished():  # at the end of the subtask, before the own lanes
                    while not own.wait(_LOOK_SECONDS):
                        pass
                    return False
                case _:
                    return False
            if self._wait_for_retry(own):
                return False
            self._error = self._retry_at = None
        return False

    def _record_failure(self, error: ShardmergeError, failures: int, join: TableJoin) -> None:
        error = error.completed(task=self._context.config.task, source=self._context.config.source_id)
        pause = _BACKOFF.seconds(failures + 1)
        self._retry_at = time.monotonic() + pause if error.spec.retryable else None
        self._error = error
        log.error(
            "joining tables failed",
            task=self._context.config.task,
            source=self._context.config.source_id,
            tables=join.status().tables,
            error=str(error),
            workaround=error.workaround,
            seconds=pause if error.spec.retryable else None,
        )
        self._context.on_tables("tables cannot join", join.status().tables, error)

    def retry(self) -> None:
        """Try again now what has failed: an operator may have removed the cause."""
        self._table_source.retry()
        if self._error is not None:
            self._retry_at = time.monotonic()

    def _wait_for_retry(self, own: _Running) -> bool:
        """Wait until the next attempt is due; True when the subtask's own lanes have ended first."""
        while not own.wait(_LOOK_SECONDS):
            if self._is_due():
                return False
        return True

    def _is_due(self) -> bool:
        return self._retry_at is not None and time.monotonic() >= self._retry_at

    # --- the configured end

    def _bring_to_end(self, stop: StopSignal) -> Outcome:
        """The own lanes have ended at the configured end: bring the tables that are away to the same place, one set
        after the other, and adopt them. Raises coded errors."""
        self._alignment.cancel()
        self._error = self._retry_at = None
        self._own_ended = True
        failures = 0
        interrupted = self._driver.tables.copies
        if interrupted and self._end is not None:
            plans = self._driver.tables.plans
            raise self._end.error([plans[number].table.full_name for number in interrupted])
        while not stop.is_set:
            if self._join is None and not self._take_next():
                if not self._table_source.has_more():
                    return Finished()
                self._table_source.wait(_LOOK_SECONDS)
                continue
            join = self._join
            if join is None:
                continue
            match join.run(stop.child()):
                case Finished():
                    failpoints.hit("end.before_adopting")
                    if not self._adopt(join):
                        relay = self._context.relay
                        raise errors.relay.RELAY_RESTARTED(source=relay.source_id, relay_id=relay.relay_id)
                    self._join = self._error = self._retry_at = None
                    failures = 0
                case Failed(error=error):
                    self._record_failure(error, failures, join)
                    failures += 1
                    while not stop.is_set and not self._is_due():
                        stop.wait(_LOOK_SECONDS)
                case _:
                    return Stopped()
        return Stopped()

    def _take_next(self) -> bool:
        """Take the tables that have to join now; False: there are none. Raises coded errors."""
        pending = self._table_source.next()
        if pending is None:
            return False
        self._join = pending
        self._table_source.confirm_taken(pending)
        return True

    # --- alignment and adoption

    def _align(self, join: TableJoin, own: _Running, joining: _Running) -> bool:
        """Align all lanes of both streams at one group end and adopt the tables; False when a stream ended before."""
        lanes = join.lanes
        assert lanes is not None  # noqa: S101 - for the type checker: it is near
        self._alignment.request()
        adopted = False
        # Once the alignment is requested, the subtask's own lanes can be resumed only after all of them have arrived,
        # whatever happens to the other stream: a lane that has not arrived yet would still stop, and wait for the rest.
        while not own.is_over:
            if self._main.wait_aligned(_LOOK_SECONDS) is None:
                continue
            if lanes.wait_aligned(_LOOK_SECONDS) is not None:
                adopted = self._adopt(join)
            elif not joining.is_over:
                continue
            self._alignment.cancel()
            self._main.resume()
            break
        return adopted

    def _adopt(self, join: TableJoin) -> bool:
        """Record in one transaction that the own lanes have the tables. All lanes are at one place. False: the streams
        must not be merged at this place, but later. Raises FENCED."""
        context, who = self._context, self._context.who
        record = join.joining
        tables = join.status().tables

        def read(session: Session) -> _AlignedState:
            return _AlignedState(
                checkpoints.read_begun(session, who),
                checkpoints.read_all(session, who, Stream.JOIN),
                subtask_record.read_row(session, who),
                tuple(ddl_records.read_passed(session, who, stream) for stream in Stream),
            )

        aligned = context.at_target(read)
        found, joined, row = aligned.own, aligned.joined, aligned.row
        if row is None or Joining.from_json(row.joining) != record or not is_one_place((*found, *joined)):
            here = sorted({(item.relay_id, item.offset, item.skip_events) for item in (*found, *joined)})
            raise errors.worker.INTERNAL(
                kind="lanes not aligned", where=f"task {context.config.task}", reason=f"they are at {here}"
            )
        if not is_after_statements((*found, *joined), aligned.executed):
            return False
        log.info(
            "joining tables are taken over",
            task=context.config.task,
            source=context.config.source_id,
            at=str(self._alignment.place),
            tables=tables,
        )

        own = self._driver.tables.at_barrier(found[0].offset)
        merged = own.with_joined(join.stream_tables).checked(own, f"the take-over at {found[0].position}")
        executed = dict(zip(Stream, aligned.executed, strict=True))[Stream.MAIN]
        cleared = join.cleared_shards
        failpoints.hit("join.before_adopting")

        def rewrite(session: Session) -> None:
            checkpoints.remove(session, who, joined, Stream.JOIN)
            ddl_records.delete_passed(session, who, Stream.JOIN)
            if executed is not None:
                ddl_records.write_passed(session, who, Stream.MAIN, executed)
            passed_marks.write(session, who, cleared)
            failpoints.hit("join.adopting")

        partitioning = merged.partitioning.to_json()
        context.at_target(
            lambda session: subtask_record.adopt_joined(session, who, context.epoch, partitioning, rewrite)
        )
        failpoints.hit("join.adopted")
        self._driver.tables = merged
        log.info("tables have joined", task=context.config.task, source=context.config.source_id, tables=tables)
        context.on_tables("tables have joined", tables, None)
        return True

    # --- status

    def status(self) -> worker_pb2.SyncStatus:
        """The own lanes' status; not synced while shard tables are parked at a sharding DDL, or replay after it."""
        status = self._main.status()
        # In this order, here and below: tables that are taken in between are then found at their new place.
        has_more, join = self._table_source.has_more(), self._join
        if has_more or (join is not None and join.replays):
            status.synced = status.complete = False
        return status

    def activity(self) -> str:
        end = _ENDS_WHEN_WHOLE if self._ends_when_whole else ""
        if self._own_ended and self._end is not None:
            end = f"all lanes are at the end, {self._end.shown}; other tables are not there yet"
        waits = _UPDATE_WAITS if self._ends_when_joined else ""
        parts = (self._main.activity(), self._table_source.activity(), waits, end)
        return "; ".join(phrase for phrase in parts if phrase)

    def join_status(self) -> worker_pb2.JoinStatus | None:
        """The status of the joining tables; None when none are joining."""
        join = self._join
        if join is None:
            return None
        status = join.status()
        error, retry_at = self._error, self._retry_at
        if error is not None:
            status.phase = "failed"
            status.error.CopyFrom(error_to_proto(error))
            status.retry_seconds = max(0.0, retry_at - time.monotonic()) if retry_at is not None else 0.0
        return status

    def copy_status(self) -> tuple[worker_pb2.JoinStatus, ...]:
        """The status of tables of which the rest of the history is copied: the copy that runs, and each failure."""
        return self._table_source.copy_status()

    def lowest(self) -> RelayOffset | None:
        """The lowest offset that any lane may need again; None while unknown."""
        own, pending, join = self._main.lowest(), self._table_source.lowest(), self._join
        joining = join.lowest() if join is not None else own
        if own is None or joining is None:
            return None
        return min(place for place in (own, joining, pending) if place is not None)

    @property
    def own_lanes(self) -> ReplicateUnit:
        """The unit of the subtask's own lanes."""
        return self._main
