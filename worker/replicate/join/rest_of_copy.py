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
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from shardmerge.proto import errors, failpoints, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal, running_thread
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
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
_BACKOFF_FIRST_SECONDS = 1.0
_BACKOFF_MAX_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why the rest of the copy does not continue. ``retry_at``: monotonic time; None: an operator has to act."""

    error: ShardmergeError
    retry_at: float | None


class RestOfCopy:
    """For one run of a subtask. :meth:`run` runs in its own thread until stopped."""

    def __init__(self, context: RunContext, queue: ParkedQueue) -> None:
        self._context = context
        self._queue = queue
        self._lock = threading.Lock()
        self._names: tuple[str, ...] = ()
        self._unit: SnapshotUnit | None = None
        self._failure: _Failure | None = None

    def running(self, stop: StopSignal) -> AbstractContextManager[None]:
        """Run :meth:`run` in its own thread while the block runs."""
        return running_thread("rest-of-copy", self.run, stop)

    def run(self, stop: StopSignal) -> None:
        """Copy until stopped, or until an error that an operator must decide about. Other errors are retried."""
        failures = 0
        while not stop.is_set:
            uncopied = self._queue.uncopied()
            if not uncopied:
                self._queue.wait_uncopied(_LOOK_SECONDS)
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
                self._set_failure(None)
                continue
            if stop.is_set:
                return
            pause = min(_BACKOFF_FIRST_SECONDS * 2**failures, _BACKOFF_MAX_SECONDS)
            failures += 1
            log.error(
                "the rest of a copy failed",
                task=self._context.config.task,
                source=self._context.config.source_id,
                tables=self._names,
                error=str(failure),
                workaround=failure.workaround,
                seconds=pause if failure.spec.retryable else None,
            )
            if not failure.spec.retryable:
                self._set_failure(_Failure(failure, None))
                return
            self._set_failure(_Failure(failure, time.monotonic() + pause))
            stop.wait(pause)

    def status(self) -> worker_pb2.JoinStatus | None:
        """For query-status; None: there is nothing to copy."""
        with self._lock:
            names, unit, failure = self._names, self._unit, self._failure
        if unit is None and failure is None:
            return None
        status = worker_pb2.JoinStatus(tables=sorted(names), phase=JoinPhase.COPYING.value)
        if unit is not None:
            status.load.CopyFrom(unit.status())
        if failure is not None:
            status.phase = "failed"
            status.error.CopyFrom(error_to_proto(failure.error))
            status.retry_seconds = max(0.0, (failure.retry_at or 0.0) - time.monotonic())
        return status

    # --- parts

    def _set_failure(self, failure: _Failure | None) -> None:
        with self._lock:
            self._failure = failure
            self._unit = None

    def _copy(self, uncopied: Mapping[int, tuple[Parked, RelayOffset]], stop: StopSignal) -> None:
        """Copy the rest of these tables, as far as no statement interrupts it. Raises coded errors."""
        recorded, tables = self._context.at_target(self._read)
        items = {number: item for number, (item, _) in uncopied.items()}
        left = {
            number: item
            for number, item in items.items()
            if number in recorded and recorded[number].number == item.resumes_copy
        }
        if left:
            context = replace(self._context, tables=tables)
            plans = joining_plans(context, frozenset(left))
            with self._lock:
                self._names = tuple(plan.table.full_name for plan in plans)
            self._check_keys(plans, recorded)
            names = frozenset((plan.table.schema, plan.table.name) for plan in plans)
            unit = SnapshotUnit(
                context,
                plans,
                {number: item.resume_at for number, item in left.items()},
                TableScope(context.rules, only=names),
            )
            with self._lock:
                self._unit = unit
            match unit.run(stop):
                case Finished():
                    pass
                case Failed(error=error):
                    raise error
                case _:
                    return
            self._record(left, interrupted_copies_of(unit.interrupted, plans, recorded))
        failpoints.hit("copy.completed")
        self._queue.copied({number: item.resumes_copy for number, item in items.items()})

    def _read(self, session: Session) -> tuple[dict[int, InterruptedCopy], tuple[Table, ...]]:
        who = self._context.who
        return interrupted_copies.read(session, *who), subtask_record.read_tables(session, *who)

    def _check_keys(self, plans: tuple[TablePlan, ...], recorded: Mapping[int, InterruptedCopy]) -> None:
        """Check that the recorded chunks' bounds still have a meaning. Raises COPY_KEY_CHANGED."""
        for plan in plans:
            if not orders_alike(recorded[plan.shard].key, chunk_key(plan)):
                raise errors.snapshot.COPY_KEY_CHANGED(
                    source=plan.source,
                    task=self._context.config.task,
                    table=plan.table.full_name,
                    target=plan.target_name,
                    position=recorded[plan.shard].place,
                )

    def _record(self, left: Mapping[int, Parked], interrupted: Mapping[int, InterruptedCopy]) -> None:
        """Record which of the tables are copied completely, and which copies were interrupted again. Raises FENCED."""
        context = self._context
        failpoints.hit("copy.before_completed")

        def also(session: Session) -> None:
            interrupted_copies.delete(session, *context.who, left.keys() - interrupted.keys())
            interrupted_copies.write(session, *context.who, interrupted)

        context.at_target(
            lambda session: subtask_record.record_statement(session, *context.who, context.epoch, {}, {}, also)
        )
