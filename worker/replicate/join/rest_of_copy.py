"""Copies the rest of the history of shard tables whose copy was interrupted by a statement.

    snapshot ── statement D on a table: its copied chunks are kept, no further one is read
    stream   ── applies the copied chunks' rows up to D ── D as any other statement ── the table leaves the stream
    here     ── the other chunks are copied, with the structure after D
    replay   ── the table's own stream from D on; each chunk's rows count from its high watermark on ── it joins again

If a further statement on the table interrupts this copy too, the replay ends at that statement, and the same begins
there again. The copy runs in parallel with the streams; a failure of it concerns its tables only.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from shardmerge.proto import errors, failpoints, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import Backoff
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal, running_thread
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
from shardmerge.worker.replicate.join.subtask_end import SubtaskEnd
from shardmerge.worker.replicate.join.table_join import JoinPhase, joining_plans
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.snapshot.chunk_key import chunk_key, orders_alike
from shardmerge.worker.snapshot.unit import SnapshotUnit, interrupted_copies_of
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.records.history.interrupted_copies import InterruptedCopy
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.unit.contract import Failed, Finished
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_LOOK_SECONDS = 0.2
_BACKOFF = Backoff(1.0, 60.0)


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why the rest of the copy of these tables does not continue. ``retry_at``: monotonic time; None: an operator has
    to act."""

    names: tuple[str, ...]
    error: ShardmergeError
    retry_at: float | None


@dataclass(frozen=True, slots=True)
class _Running:
    """The tables whose rest is copied now. ``unit``: None until their plans are made."""

    names: tuple[str, ...]
    unit: SnapshotUnit | None


class RestOfCopy:
    """For one run of a subtask. :meth:`run` runs in its own thread until stopped.

    An error that only an operator can remove stops the tables that it concerns: if several tables are copied at once,
    they are divided until the error concerns one.
    """

    def __init__(self, context: RunContext, queue: ParkedQueue, end: SubtaskEnd | None) -> None:
        """``end``: of the subtask; no chunk may be read after it."""
        self._end = end
        self._context = context
        self._queue = queue
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._retried: _Failure | None = None
        self._stopped: dict[tuple[int, int], _Failure] = {}  # by number of the table and of the interruption
        # Only used by the thread of run():
        self._groups: deque[frozenset[int]] = deque()
        self._queue_version = 0

    def running(self, stop: StopSignal) -> AbstractContextManager[None]:
        """Run :meth:`run` in its own thread while the block runs."""
        return running_thread("rest-of-copy", self.run, stop)

    def run(self, stop: StopSignal) -> None:
        """Copy until stopped. Errors that may pass are retried; another error stops the tables that it concerns."""
        failures = 0
        while not stop.is_set:
            uncopied = self._next_round()
            if not uncopied:
                self._queue.wait_change(self._queue_version, _LOOK_SECONDS)
                continue
            try:
                self._copy(uncopied, stop)
            except ShardmergeError as error:
                failure = error
            except Exception as error:
                log.exception("rest of a copy", task=self._context.config.task)
                failure = errors.worker.INTERNAL(kind=type(error).__name__, where="the rest of a copy", reason=error)
            else:
                failures = 0
                self._set_running(None)
                continue
            if stop.is_set:
                return
            if not failure.spec.retryable:
                failures = 0
                self._stop_tables(uncopied, failure)
                continue
            failures += 1
            pause = _BACKOFF.seconds(failures)
            self._retry(failure, pause)
            stop.wait(pause)

    def retry(self) -> None:
        """Copy again the tables that an error has stopped."""
        with self._lock:
            self._stopped = {}

    def status(self) -> tuple[worker_pb2.JoinStatus, ...]:
        """For query-status: the copy that runs, and each failure."""
        with self._lock:
            running, retried = self._running, self._retried
            stopped = {id(failure): failure for failure in self._stopped.values()}.values()
        found = [_failed(failure) for failure in ((retried, *stopped) if retried is not None else stopped)]
        if running is not None and running.unit is not None:
            copying = worker_pb2.JoinStatus(tables=running.names, phase=JoinPhase.COPYING.value)
            copying.load.CopyFrom(running.unit.status())
            found.insert(0, copying)
        return tuple(found)

    # --- parts

    def _next_round(self) -> dict[int, tuple[Parked, RelayOffset]]:
        """The tables to copy next: all that no error stops, or a part of them after an error."""
        self._queue_version = self._queue.version()
        uncopied = self._queue.uncopied()
        rounds = {(number, item.resumes_copy): number for number, (item, _) in uncopied.items()}
        with self._lock:
            # A table that was removed or interrupted again is no longer stopped.
            self._stopped = {key: failure for key, failure in self._stopped.items() if key in rounds}
            ready = {number: uncopied[number] for key, number in rounds.items() if key not in self._stopped}
        while self._groups:
            group = ready.keys() & self._groups[0]
            if group:
                return {number: ready[number] for number in group}
            self._groups.popleft()
        return ready

    def _stop_tables(self, uncopied: Mapping[int, tuple[Parked, RelayOffset]], error: ShardmergeError) -> None:
        """Stop the only table of a round; divide the tables of a round that has several. After the end of the subtask,
        no table of the round can be copied."""
        numbers = sorted(uncopied)
        if self._groups:
            self._groups.popleft()
        if len(numbers) > 1 and error.spec is not errors.snapshot.COPY_OF_ENDING:
            half = len(numbers) // 2
            self._groups.extendleft((frozenset(numbers[half:]), frozenset(numbers[:half])))
            self._set_running(None)
            return
        with self._lock:
            names = self._running.names if self._running is not None else ()
        self._stop([item for item, _ in uncopied.values()], names, error)

    def _stop(self, items: Sequence[Parked], names: tuple[str, ...], error: ShardmergeError) -> None:
        """Copy no more of these tables until they are interrupted again, or until the subtask's next run."""
        error = error.completed(task=self._context.config.task, source=self._context.config.source_id)
        self._log_failure(names, error, None)
        with self._lock:
            self._running = self._retried = None
            failure = _Failure(names, error, None)
            self._stopped |= {(item.number, item.resumes_copy): failure for item in items}

    def _retry(self, error: ShardmergeError, pause: float) -> None:
        with self._lock:
            names = self._running.names if self._running is not None else ()
            self._running = None
            self._retried = _Failure(names, error, time.monotonic() + pause)
        self._log_failure(names, error, pause)

    def _log_failure(self, names: tuple[str, ...], error: ShardmergeError, pause: float | None) -> None:
        """``pause``: seconds until the next attempt; None: there is none."""
        log.error(
            "the rest of a copy failed",
            task=self._context.config.task,
            source=self._context.config.source_id,
            tables=names,
            error=str(error),
            workaround=error.workaround,
            seconds=pause,
        )
        self._context.on_tables("the rest of a copy failed", names, error)

    def _copy(self, uncopied: Mapping[int, tuple[Parked, RelayOffset]], stop: StopSignal) -> None:
        """Copy the rest of these tables, as far as no statement interrupts it. Raises coded errors."""
        recorded, tables = self._context.at_target(self._read)
        # Tables of one name are copied one after the other: the source has given the name of the first to the next.
        first = {
            (tables[at].schema, tables[at].name): at
            for at in sorted(uncopied, key=lambda at: uncopied[at][1], reverse=True)
        }
        items = {number: uncopied[number][0] for number in first.values()}
        left = {
            number: item
            for number, item in items.items()
            if number in recorded and recorded[number].number == item.resumes_copy
        }
        if left:
            context = replace(self._context, tables=tables)
            self._set_running(_Running(_names(tables[number] for number in left), None))
            made = joining_plans(context, frozenset(left))
            plans = self._with_usable_keys(made, recorded, left)
            for plan in made:
                if plan not in plans:
                    del left[plan.shard], items[plan.shard]
            if plans and not self._copy_plans(context, plans, recorded, left, stop):
                return
        failpoints.hit("copy.completed")
        self._queue.copied({number: item.resumes_copy for number, item in items.items()})

    def _copy_plans(
        self,
        context: RunContext,
        plans: tuple[TablePlan, ...],
        recorded: Mapping[int, InterruptedCopy],
        left: Mapping[int, Parked],
        stop: StopSignal,
    ) -> bool:
        """Whether the tables were copied, or were interrupted again. False: stopped before. Raises coded errors."""
        names = frozenset((plan.table.schema, plan.table.name) for plan in plans)
        starts = {number: item.resume_at for number, item in left.items()}
        shown = _names(plan.table for plan in plans)
        check_end = self._end.checker(shown) if self._end is not None else None
        unit = SnapshotUnit(context, plans, starts, TableScope(context.rules, only=names), check_end, computed=True)
        self._set_running(_Running(shown, unit))
        match unit.run(stop):
            case Finished():
                pass
            case Failed(error=error):
                raise error
            case _:
                return False
        self._record(left, interrupted_copies_of(unit.interrupted, plans, recorded))
        return True

    def _set_running(self, running: _Running | None) -> None:
        with self._lock:
            self._running = running
            if running is None:
                self._retried = None

    def _read(self, session: Session) -> tuple[dict[int, InterruptedCopy], tuple[Table, ...]]:
        who = self._context.who
        return interrupted_copies.read(session, who), subtask_record.read_tables(session, who)

    def _with_usable_keys(
        self, plans: tuple[TablePlan, ...], recorded: Mapping[int, InterruptedCopy], left: Mapping[int, Parked]
    ) -> tuple[TablePlan, ...]:
        """The plans of the tables whose recorded chunks' bounds still have a meaning. The others are stopped."""
        usable: list[TablePlan] = []
        for plan in plans:
            if orders_alike(recorded[plan.shard].key, chunk_key(plan)):
                usable.append(plan)
                continue
            error = errors.snapshot.COPY_KEY_CHANGED(
                source=plan.source,
                task=self._context.config.task,
                table=plan.table.full_name,
                target=plan.target_name,
                position=recorded[plan.shard].place,
            )
            self._stop([left[plan.shard]], _names([plan.table]), error)
        return tuple(usable)

    def _record(self, left: Mapping[int, Parked], interrupted: Mapping[int, InterruptedCopy]) -> None:
        """Record which of the tables are copied completely, and which copies were interrupted again. Raises FENCED."""
        context = self._context
        failpoints.hit("copy.before_completed")

        def also(session: Session) -> None:
            interrupted_copies.delete(session, context.who, left.keys() - interrupted.keys())
            interrupted_copies.write(session, context.who, interrupted)

        context.at_target(
            lambda session: subtask_record.record_statement(session, context.who, context.epoch, {}, {}, also)
        )


def _names(tables: Iterable[Table]) -> tuple[str, ...]:
    return tuple(sorted(f"{table.schema}.{table.name}" for table in tables))


def _failed(failure: _Failure) -> worker_pb2.JoinStatus:
    retry_seconds = max(0.0, failure.retry_at - time.monotonic()) if failure.retry_at is not None else 0.0
    return worker_pb2.JoinStatus(
        tables=failure.names,
        phase="failed",
        error=error_to_proto(failure.error),
        retry_seconds=retry_seconds,
    )
