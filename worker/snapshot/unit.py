"""The snapshot unit: plans, dispenses, reads and loads every table of a subtask, then finishes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from shardmerge.proto import errors, failpoints
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.config import defaults
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.cancellable_session import ANSWER_SECONDS, cancellable, cancellable_session
from shardmerge.worker.core.mysql.connection import Session, Side, coded_errors, connect
from shardmerge.worker.core.mysql.information_schema import read_tables
from shardmerge.worker.core.spark.runner import TaskFailed
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Column, Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.snapshot.blocking_statements import BlockingStatements
from shardmerge.worker.snapshot.chunk_records import StoredChunk
from shardmerge.worker.snapshot.chunk_store import SnapshotStore
from shardmerge.worker.snapshot.chunks import Chunk, rows_per_chunk
from shardmerge.worker.snapshot.dispenser import Dispenser, PlannedChunk
from shardmerge.worker.snapshot.load_monitor import LoadMonitor
from shardmerge.worker.snapshot.progress import Progress
from shardmerge.worker.snapshot.rate_limiter import ChunkSize, RateLimiter, RateLimits
from shardmerge.worker.snapshot.reader.chunk_reader import ReaderSpec, ReaderTask
from shardmerge.worker.snapshot.source.chunk_source import open_source
from shardmerge.worker.snapshot.source_load import LoadLimits
from shardmerge.worker.snapshot.table_planner import MAX_CHUNK_BYTES, TablePlanner, is_whole
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, Stopped
from shardmerge.worker.unit.run_context import RunContext, RunningSnapshot

log = get_logger()

_BATCH_CHUNKS = 1000
_BATCH_SECONDS = 0.2
_ATTEMPTS = 5
_BACKOFF_SECONDS = 0.2
_LARGE_ROWS = 100_000


class SnapshotUnit:
    """Copies a subtask's tables; a ProcessUnit. The relay log must already reach back to the subtask's start."""

    def __init__(self, context: RunContext, plans: tuple[TablePlan, ...], scope: TableScope | None = None) -> None:
        """``plans``: of the tables to copy; their target tables exist (worker/target/tables/make_targets.py).
        ``scope``: the tables whose statements no fix-up may ignore; None: all tables of the rules."""
        config = context.config
        self._context = context
        self._plans = plans
        self._scope = TableScope(context.rules) if scope is None else scope
        self._source_id = config.source_id
        self._store = SnapshotStore(config.meta_schema, config.task, config.source_id, context.epoch)
        self._progress = Progress(())
        self._dispenser: Dispenser | None = None

    def status(self) -> pb.LoadStatus:
        return self._progress.status()

    def activity(self) -> str:
        """What the readers wait for; while they read, "" or the number of rows read of large chunks."""
        dispenser = self._dispenser
        waiting_for = "" if dispenser is None else dispenser.waiting_for()
        reading_rows = self._progress.status().reading_rows
        if waiting_for or reading_rows < _LARGE_ROWS:
            return waiting_for
        return f"{reading_rows:,} rows of large chunks are read and not committed yet"

    def run(self, stop: StopSignal) -> Outcome:
        try:
            return self._run(stop)
        except ShardmergeError as error:
            return Stopped() if stop.is_set else Failed(error)
        except Exception as error:
            log.exception("snapshot unit", task=self._context.config.task, source=self._source_id)
            return Failed(errors.worker.INTERNAL(kind=type(error).__name__, where="the snapshot unit", reason=error))

    def _run(self, stop: StopSignal) -> Outcome:
        context, config = self._context, self._context.config
        plans, stored = self._plans, self._prepare(stop)
        progress = self._progress = Progress(plans, stored)
        if all(item.loaded is not None for item in stored) and progress.status().plan_complete:
            self._check_complete(plans, stop)
            return Finished()
        limits = RateLimits(config.snapshot.rows_per_second, config.snapshot.bytes_per_second)
        dispenser = self._dispenser = Dispenser(progress, stop, RateLimiter(limits, self._first_chunk_size()))
        by_shard = {plan.shard: plan for plan in plans}
        dispenser.add(PlannedChunk(by_shard[item.shard], item.chunk) for item in stored if item.loaded is None)
        planner = _Planner(context, self._store, plans, stored, dispenser, progress, stop.child())
        spec = ReaderSpec(
            address=context.lane_address,
            secret=context.run_secret,
            task=config.task,
            source_id=self._source_id,
            epoch=context.epoch,
            source=context.source_endpoint.without_secrets(),
            target=context.target_endpoint.without_secrets(),
            meta_schema=config.meta_schema,
            plans=plans,
            always_watermarks=config.snapshot.position == "watermark",
        )
        monitor = self._load_monitor(dispenser, stop)
        context.compiled.admit(plans)
        readers = config.snapshot.threads or defaults.READERS
        context.registry.register_dispenser(
            RunningSnapshot(
                config.task,
                self._source_id,
                context.epoch,
                dispenser,
                BlockingStatements(self._scope, config.task, self._source_id),
                stop.child(),
                readers,
                context.access,
                context.compiled,
            )
        )
        try:
            planner.start()
            if monitor is not None:
                monitor.start()
            outcomes = context.spark.run(
                f"snapshot {config.task} {self._source_id}",
                readers,
                ReaderTask(spec),
                stop,
            )
        finally:
            dispenser.close()
            planner.end()
            if monitor is not None:
                monitor.end()
            context.registry.unregister_dispenser(config.task, context.epoch)
        if dispenser.failure is not None:
            raise dispenser.failure
        for outcome in outcomes:
            if isinstance(outcome, TaskFailed):
                raise outcome.error
        if stop.is_set:
            return Stopped()
        self._check_complete(plans, stop)
        return Finished()

    def _load_monitor(self, dispenser: Dispenser, stop: StopSignal) -> LoadMonitor | None:
        """The monitor, if limits are configured. No chunk begins before its first measurement."""
        config = self._context.config.snapshot
        limits = LoadLimits(config.max_threads_running, config.max_replica_lag)
        if not limits.is_limited:
            return None
        dispenser.throttle("the source's load has not been read yet")
        return LoadMonitor(self._context.source_endpoint, self._source_id, limits, dispenser, stop.child())

    def _first_chunk_size(self) -> ChunkSize:
        """The expected size of the first chunk, by the server's estimates."""
        if not self._plans:
            return ChunkSize(0, 0)
        table = self._plans[0].table
        rows = table.row_estimate
        if not is_whole(self._plans[0]):
            most = self._context.config.snapshot.chunk_rows or defaults.CHUNK_ROWS
            rows = min(rows, rows_per_chunk(most, rows, table.byte_estimate, MAX_CHUNK_BYTES))
        return ChunkSize(rows, rows * table.byte_estimate // max(table.row_estimate, 1))

    def _prepare(self, stop: StopSignal) -> list[StoredChunk]:
        """Check the tables' structures and record the tables; returns the chunks that earlier runs recorded."""
        with self._source_session(stop) as source:
            self._check_structures(source)
        with self._target_session(stop) as target:
            self._store.ensure(target)
            self._store.begin(target, self._plans)
            return self._read_chunks(target)

    def _read_chunks(self, target: Session) -> list[StoredChunk]:
        """The chunks of this unit's tables: another unit may have copied other tables of the subtask."""
        mine = {plan.shard for plan in self._plans}
        return [item for item in self._store.read_chunks(target) if item.shard in mine]

    def _source_session(self, stop: StopSignal) -> AbstractContextManager[Session]:
        return cancellable_session(stop, self._context.source_endpoint, Side.SOURCE, name=self._source_id)

    def _target_session(self, stop: StopSignal) -> AbstractContextManager[Session]:
        return cancellable_session(stop, self._context.target_endpoint, Side.TARGET, name="target")

    def _check_structures(self, source: Session) -> None:
        """Chunks of one table must be read with one structure.

        Raises TABLE_GONE, STRUCTURE_CHANGED and ``pymysql.MySQLError``.
        """
        context = self._context
        tables = [plan.table for plan in self._plans]
        names = [(table.schema, table.name) for table in tables]
        found = {(table.schema, table.name): table for table in read_tables(source, names, source=self._source_id)}
        for table in tables:
            now = found.get((table.schema, table.name))
            names_of = {
                "source": self._source_id,
                "schema": table.schema,
                "table": table.name,
                "task": context.config.task,
            }
            if now is None:
                raise errors.snapshot.TABLE_GONE(**names_of)
            difference = structure_difference(table, now)
            if difference:
                raise errors.snapshot.STRUCTURE_CHANGED(**names_of, difference=difference)

    def _check_complete(self, plans: Sequence[TablePlan], stop: StopSignal) -> None:
        """Check at the servers that every chunk is loaded and that no table was altered meanwhile."""
        with self._target_session(stop) as target:
            chunks = self._read_chunks(target)
        ended = {item.shard for item in chunks if item.chunk.is_last}
        left = sum(item.loaded is None for item in chunks) + sum(plan.shard not in ended for plan in plans)
        if left:
            raise errors.snapshot.INCOMPLETE(task=self._context.config.task, source=self._source_id, left=left)
        with self._source_session(stop) as source:
            self._check_structures(source)


def structure_difference(before: Table, now: Table) -> str:
    """Describes how the structure of a table's rows changed; "" when it did not. Further keys do not matter."""
    if before.columns != now.columns:
        old = {column.name: column for column in before.columns}
        new = {column.name: column for column in now.columns}
        parts = [f"column {name} is gone" for name in old if name not in new]
        parts += [f"column {name} is new" for name in new if name not in old]
        parts += [
            f"column {name} was {_column_text(old[name])}, is {_column_text(new[name])}"
            for name in old
            if name in new and old[name] != new[name]
        ]
        return "; ".join(parts) or "the columns are in another order"
    if before.key != now.key:
        return "the key is another one"
    return ""


def _column_text(column: Column) -> str:
    parts = [column.type_text, column.collation, "NULL" if column.nullable else "NOT NULL"]
    return " ".join(part for part in parts if part)


class _Planner(threading.Thread):
    """The thread that plans one table after the other, records the chunks and adds them to the dispenser."""

    def __init__(
        self,
        context: RunContext,
        store: SnapshotStore,
        plans: Sequence[TablePlan],
        stored: Sequence[StoredChunk],
        dispenser: Dispenser,
        progress: Progress,
        stop: StopSignal,
    ) -> None:
        """``stop``: this thread's own, a child of the unit's."""
        super().__init__(name=f"planner-{context.config.task}", daemon=True)
        self._source_id = context.config.source_id
        self._source_endpoint = context.source_endpoint
        self._target_endpoint = context.target_endpoint
        self._chunk_rows = context.config.snapshot.chunk_rows or defaults.CHUNK_ROWS
        self._store, self._plans = store, plans
        self._dispenser, self._progress = dispenser, progress
        self._unwanted = stop
        self._last: dict[int, Chunk] = {item.shard: item.chunk for item in stored}

    def end(self) -> None:
        """Stop the thread, even while it waits for a server, and join it."""
        self._unwanted.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        try:
            self._plan_with_retries()
        except ShardmergeError as error:
            self._dispenser.fail(error)
        except Exception as error:
            log.exception("chunk planner", source=self._source_id)
            self._dispenser.fail(
                errors.worker.INTERNAL(kind=type(error).__name__, where="the chunk planner", reason=error)
            )

    def _plan_with_retries(self) -> None:
        """Plan the tables. After a retryable error, such as a locked table, continue after the last recorded chunk."""
        attempt = 0
        while True:
            try:
                self._plan_tables()
                return  # noqa: TRY300
            except ShardmergeError as error:
                if self._unwanted.is_set:
                    return
                attempt += 1
                if not error.spec.retryable or attempt == _ATTEMPTS:
                    raise
                log.warning("planning is retried", source=self._source_id, error=str(error))
            if self._dispenser.wait_ending(_BACKOFF_SECONDS * 2**attempt):
                return

    def _plan_tables(self) -> None:
        stop = self._unwanted
        with (
            cancellable(open_source(self._source_endpoint, self._source_id), stop) as source,
            cancellable(
                connect(self._target_endpoint, Side.TARGET, name="target", read_timeout=ANSWER_SECONDS), stop
            ) as target,
        ):
            for plan in self._plans:
                last = self._last.get(plan.shard)
                if last is None or not last.is_last:
                    self._plan_table(source, target, plan, last)
                if self._dispenser.is_ending:
                    return
            self._dispenser.complete()

    def _plan_table(self, source: Session, target: Session, plan: TablePlan, last: Chunk | None) -> None:
        """Publish chunks in batches of what was found within the last moments; the first chunk is published at once."""
        batch: list[Chunk] = []
        with coded_errors(self._source_endpoint, Side.SOURCE, self._source_id):
            chunks = TablePlanner(source, plan, self._chunk_rows).chunks(last)  # may ask the server at once
        since = time.monotonic()
        first = True
        while True:
            with coded_errors(self._source_endpoint, Side.SOURCE, self._source_id):
                chunk = next(chunks, None)
            if chunk is not None:
                batch.append(chunk)
            now = time.monotonic()
            due = chunk is None or first or len(batch) >= _BATCH_CHUNKS or now - since >= _BATCH_SECONDS
            if due and batch:
                self._publish(target, plan, batch)
                batch, since, first = [], now, False
            if chunk is None or self._dispenser.is_ending:
                return

    def _publish(self, target: Session, plan: TablePlan, batch: Sequence[Chunk]) -> None:
        failpoints.hit("snapshot.planning")
        with coded_errors(self._target_endpoint, Side.TARGET, "target"):
            self._store.add_chunks(target, plan.shard, batch)
        self._last[plan.shard] = batch[-1]
        self._progress.planned(plan.shard, len(batch), complete=batch[-1].is_last)
        self._dispenser.add(PlannedChunk(plan, chunk) for chunk in batch)
        failpoints.hit("snapshot.planned")
