"""A chunk reader, the body of one Spark task: takes chunks from its worker and loads them until none is left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from shardmerge.proto import errors, failpoints, relay_pb2
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import Backoff
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import Located, SourcePosition
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.spark.task_credentials import fetch_credentials
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.task_runner import TaskBody, TaskDone, TaskOutcome, TaskStopped
from shardmerge.worker.rules.stage.row_stage import TableStage, as_decoded, needs_stage
from shardmerge.worker.rules.stage.server_filter import ServerFilter
from shardmerge.worker.snapshot.chunk_records import ChunkResult, HighWatermark
from shardmerge.worker.snapshot.chunk_store import SnapshotStore
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.reader.chunk_loader import ChunkLoader, ChunkTransaction
from shardmerge.worker.snapshot.reader.fixup import fix_up, key_of
from shardmerge.worker.snapshot.reader.relay_changes import changes_between, only_table
from shardmerge.worker.snapshot.reader.worker_link import GrpcWorkerClient, WorkerClient
from shardmerge.worker.snapshot.source.chunk_source import ChunkSource
from shardmerge.worker.snapshot.source.watermarks import UnknownPosition
from shardmerge.worker.snapshot.table_planner import is_whole

log = get_logger()

_ATTEMPTS = 5
_BACKOFF = Backoff(0.4)
_REPORT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReaderSpec:
    """The settings of all readers of one run; pickled into the Spark tasks.

    ``secret``: the secret of the run. The endpoints carry no passwords; each reader fetches them.

    ``always_watermarks``: low watermark, SELECT, high watermark, fix-up, even if the server could report the
    exact position of a read. Tables that need an exact position (see table_planner.is_whole) are still read at one.
    """

    address: str
    secret: str = field(repr=False)
    task: str
    source_id: str
    epoch: int
    source: Endpoint
    target: Endpoint
    meta_schema: str
    plans: tuple[TablePlan, ...]
    always_watermarks: bool

    def store(self) -> SnapshotStore:
        return SnapshotStore(SubtaskKey(self.meta_schema, self.task, self.source_id), self.epoch)


class ReaderTask(TaskBody):
    """The Spark task's body; called once per reader with the reader's number."""

    def __init__(self, spec: ReaderSpec) -> None:
        self._spec = spec

    def __call__(self, index: int) -> TaskOutcome:
        spec = self._spec
        found = fetch_credentials(spec.address, self._identity(index))
        if found is None:
            return TaskStopped()
        source, target = spec.source.with_secrets(found.source), spec.target.with_secrets(found.target)
        return read_chunks(replace(spec, source=source, target=target), self._link(index))

    def failed(self, index: int, error: ShardmergeError) -> None:
        link = self._link(index)
        try:
            link.report(relay_pb2.ChunkReport(failed=error_to_proto(error)))
        except ShardmergeError as unsent:
            log.debug("report not delivered", reason=str(unsent))
        finally:
            link.close()

    def _link(self, index: int) -> GrpcWorkerClient:
        return GrpcWorkerClient(self._spec.address, self._identity(index), os.getpid())

    def _identity(self, index: int) -> relay_pb2.TaskIdentity:
        spec = self._spec
        return relay_pb2.TaskIdentity(
            task=spec.task, source=spec.source_id, epoch=spec.epoch, index=index, run_secret=spec.secret
        )


def read_chunks(spec: ReaderSpec, link: WorkerClient) -> TaskOutcome:
    """Take chunks and load them until there is none, or until the worker asks to stop. Closes ``link``.

    Raises the error that ended it: that of a chunk after the last attempt, or that of the link.
    """
    reader = _Reader(spec, link)
    try:
        return reader.run()
    except _StopReading:
        return TaskStopped()
    finally:
        reader.close()


class _StopReading(Exception):
    """The worker asks this reader to end: the current chunk is rolled back."""


class _Interrupted(Exception):
    """A statement has interrupted the copy of the chunk's table: the chunk is rolled back."""


class _Reader:
    def __init__(self, spec: ReaderSpec, link: WorkerClient) -> None:
        self._spec, self._link = spec, link
        self._plans = {(plan.table.schema, plan.table.name): plan for plan in spec.plans}
        self._source = ChunkSource(spec.source, spec.source_id)
        self._loader = ChunkLoader(spec.target, spec.store())
        self._judge = ServerFilter(spec.target, spec.meta_schema)
        self._reported_at = 0.0
        self._began_at = 0.0
        self._transaction: ChunkTransaction | None = None

    def close(self) -> None:
        self._source.close()
        self._loader.close()
        self._judge.close()
        self._link.close()

    def run(self) -> TaskOutcome:
        while True:
            answer = self._link.take()
            match answer.WhichOneof("next"):
                case "chunk":
                    self._process(answer.chunk)
                case "finished":
                    return TaskDone()
                case "wait":
                    continue
                case _:
                    return TaskStopped()

    def _process(self, spec: relay_pb2.ChunkSpec) -> None:
        """Load one chunk and report it; retryable errors are retried. Raises the last error."""
        plan = self._plans[(spec.source_schema, spec.source_table)]
        chunk = Chunk(spec.number, tuple(spec.lower), tuple(spec.upper))
        self._reported_at = self._began_at = time.monotonic()
        self._transaction = None
        try:
            done = self._load_with_retries(spec, plan, chunk)
        except _Interrupted:
            report = relay_pb2.ChunkReport(chunk=spec, interrupted=True)
        else:
            report = relay_pb2.ChunkReport(
                chunk=spec,
                rows=done.rows,
                bytes=done.bytes,
                high=done.high.position.to_proto(),
                seconds=done.seconds,
            )
        if self._report(self._with_times(report)):
            raise _StopReading

    def _with_times(self, report: relay_pb2.ChunkReport) -> relay_pb2.ChunkReport:
        """``report`` with what the reader has spent on its chunk so far."""
        report.worked_seconds = time.monotonic() - self._began_at
        report.write_seconds = 0.0 if self._transaction is None else self._transaction.write_seconds
        return report

    def _load_with_retries(self, spec: relay_pb2.ChunkSpec, plan: TablePlan, chunk: Chunk) -> ChunkResult:
        attempt = 0
        while True:
            try:
                return self._load(spec, plan, chunk)
            except ShardmergeError as error:
                self._source.close()
                self._loader.close()
                attempt += 1
                if self._is_interrupted(spec):
                    raise _Interrupted from error
                # A chunk that is too large for the target is divided by the next run.
                too_large = error.spec is errors.replicate.TARGET_TRANSACTION_TOO_LARGE
                if not error.spec.retryable or too_large or attempt == _ATTEMPTS:
                    raise
                log.warning("chunk is retried", table=plan.table.full_name, chunk=chunk.number, error=str(error))
                self._pause(spec, error, _BACKOFF.seconds(attempt))

    def _is_interrupted(self, spec: relay_pb2.ChunkSpec) -> bool:
        """Whether an error may come from a statement on the chunk's table. False also when that cannot be found out."""
        try:
            return self._link.admit(spec, self._source.end()) is None
        except ShardmergeError as error:
            log.debug("whether the copy is interrupted is not known", reason=str(error))
            self._source.close()
            return False

    def _report(self, report: relay_pb2.ChunkReport) -> bool:
        return self._link.report(report)

    def _pause(self, spec: relay_pb2.ChunkSpec, error: ShardmergeError, seconds: float) -> None:
        if self._report(relay_pb2.ChunkReport(chunk=spec, retried=error_to_proto(error))):
            raise _StopReading
        time.sleep(seconds)

    def _report_progress(self, spec: relay_pb2.ChunkSpec, transaction: ChunkTransaction) -> None:
        """Once a second, so that a chunk that takes hours shows up and can be stopped."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_SECONDS:
            return
        self._reported_at = now
        report = relay_pb2.ChunkReport(chunk=spec, rows=transaction.count, bytes=transaction.bytes)
        if self._report(self._with_times(report)):
            # Rows of the answer may still arrive, so this connection cannot be used any more.
            self._source.close()
            raise _StopReading

    def _load(self, spec: relay_pb2.ChunkSpec, plan: TablePlan, chunk: Chunk) -> ChunkResult:
        if is_whole(plan) or (not self._spec.always_watermarks and self._source.reports_position):
            with suppress(UnknownPosition):
                return self._load_exact(spec, plan, chunk)
        return self._load_fixed_up(spec, plan, chunk)

    def _load_exact(self, spec: relay_pb2.ChunkSpec, plan: TablePlan, chunk: Chunk) -> ChunkResult:
        """Stream rows from the source's read to the target; no more than a statement is kept in memory."""
        started = time.monotonic()
        with self._loader.transaction(plan, chunk) as transaction:
            self._transaction = transaction
            if transaction.done is not None:
                return transaction.done
            stage = TableStage(plan, self._judge, self._link.evaluate) if needs_stage(plan) else None
            is_unchanged = partial(self._is_unchanged, plan, chunk)
            with self._source.exact(plan, chunk, is_unchanged, stage) as (position, batches):
                for batch in batches:
                    transaction.add(batch)
                    self._report_progress(spec, transaction)
                # Not the position that was read: a server may show parts of a table that a statement after it has
                # exchanged (seen with EXCHANGE PARTITION on MariaDB 10.11). No statement runs while the table is read.
                end = self._source.end()
            if self._link.admit(spec, end) is None:
                raise _Interrupted
            return _commit(transaction, HighWatermark(position), started)

    def _is_unchanged(self, plan: TablePlan, chunk: Chunk, low: SourcePosition, end: SourcePosition) -> bool:
        """Whether no change of the table is in the relay log between the two positions."""
        start, until = self._link.locate(low), self._link.locate(end)
        if plan.is_cascaded and until.offset > start.offset:  # changes of other tables may have changed it
            return False
        return not list(self._changes(as_decoded(plan), plan, chunk, start, until))

    def _changes(
        self, read: TablePlan, plan: TablePlan, chunk: Chunk, start: Located, until: Located
    ) -> Iterator[RowChange]:
        """The changes of the chunk's table, decoded by ``read``, with source keys: they decide whether a row belongs
        to the chunk, and a row may be mapped to another key. Raises RELAY_CHANGED and as changes_between()."""
        if start.relay_id != until.relay_id:
            raise _coded(errors.snapshot.RELAY_CHANGED, plan, chunk)
        if until.offset <= start.offset:
            return iter(())
        return changes_between(
            self._link,
            BlockDecoder(only_table(read), source_keys=True, source=plan.source),
            start.offset,
            until,
            changed=lambda: _coded(errors.snapshot.RELAY_CHANGED, plan, chunk),
            ended=lambda: _coded(errors.snapshot.RELAY_STREAM_ENDED, plan, chunk),
        )

    def _load_fixed_up(self, spec: relay_pb2.ChunkSpec, plan: TablePlan, chunk: Chunk) -> ChunkResult:
        started = time.monotonic()
        # Filters are evaluated on the row at the high watermark, before mapping.
        has_rules = plan.transform is not None or any(rule.insert for rule in plan.filters)
        stage = TableStage(plan, self._judge, self._link.evaluate) if has_rules else None
        read = plan if stage is None else as_decoded(plan)
        low, found, high = self._source.between_watermarks(read, chunk)
        start, end = self._link.locate(low), self._link.admit(spec, high)
        if end is None:
            raise _Interrupted
        changes = self._changes(read, plan, chunk, start, end)
        rows = {key_of(read, row): row for row in found}
        failpoints.hit("snapshot.fixing")
        fix_up(rows, read, changes, lambda keys: self._source.in_chunk(plan, chunk, keys))
        final = list(rows.values()) if stage is None else stage.history(list(rows.values()))
        with self._loader.transaction(plan, chunk) as transaction:
            self._transaction = transaction
            if transaction.done is not None:
                return transaction.done
            transaction.add([b",".join(row) for row in final])
            self._report_progress(spec, transaction)
            return _commit(transaction, HighWatermark(high, end.relay_id, end.offset), started)


def _coded(spec: ErrorSpec, plan: TablePlan, chunk: Chunk) -> ShardmergeError:
    return spec(source=plan.source, number=chunk.number, schema=plan.table.schema, table=plan.table.name)


def _commit(transaction: ChunkTransaction, high: HighWatermark, started: float) -> ChunkResult:
    transaction.flush()
    loaded = ChunkResult(transaction.count, transaction.bytes, time.monotonic() - started, high)
    transaction.commit(loaded)
    return loaded
