"""A chunk reader: the body of one Spark task. Takes chunks from its worker until none is left."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace

from proto import errors, hooks, relay_pb2, rpc
from proto.errors import ErrorSpec, ShardmergeError
from proto.log import get_logger
from worker.binlog.decoder import BlockDecoder
from worker.connection import Endpoint
from worker.credentials import fetch_credentials
from worker.plan import TablePlan
from worker.rowstage.server import Judge
from worker.rowstage.stage import TableStage, as_decoded, needs_stage
from worker.snapshot.changes import changes_between, only
from worker.snapshot.chunks import Chunk
from worker.snapshot.fixup import fix_up, key_of
from worker.snapshot.link import GrpcLink, ReaderLink
from worker.snapshot.load import ChunkLoader, ChunkTransaction
from worker.snapshot.plan import is_whole
from worker.snapshot.records import Loaded, Mark
from worker.snapshot.source import ChunkSource
from worker.snapshot.store import SnapshotStore
from worker.spark import TaskBody, TaskDone, TaskOutcome, TaskStopped

log = get_logger()

_ATTEMPTS = 5
_BACKOFF_SECONDS = 0.2
_REPORT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReaderSpec:
    """What every reader of one run gets; pickled into the Spark tasks.

    ``secret``: the secret of the run. The endpoints carry no passwords; each reader fetches them.

    ``always_watermarks``: low watermark, SELECT, high watermark, fix-up, even where the server could tell the
    exact position of a read. Tables that need an exact position (see plan.is_whole) get one all the same.
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
        return SnapshotStore(self.meta_schema, self.task, self.source_id, self.epoch)


class ReaderTask(TaskBody):
    """The Spark task's body; called once per reader with the reader's number."""

    def __init__(self, spec: ReaderSpec) -> None:
        self._spec = spec

    def __call__(self, index: int) -> TaskOutcome:
        spec = self._spec
        found = fetch_credentials(spec.address, self._who(index))
        if found is None:
            return TaskStopped()
        source, target = spec.source.with_secrets(found.source), spec.target.with_secrets(found.target)
        return read_chunks(replace(spec, source=source, target=target), self._link(index))

    def failed(self, index: int, error: ShardmergeError) -> None:
        link = self._link(index)
        try:
            link.report(relay_pb2.ChunkReport(failed=rpc.error_to_proto(error)))
        except ShardmergeError as unheard:
            log.debug("report not taken", reason=str(unheard))
        finally:
            link.close()

    def _link(self, index: int) -> GrpcLink:
        return GrpcLink(self._spec.address, self._who(index), os.getpid())

    def _who(self, index: int) -> relay_pb2.TaskIdentity:
        spec = self._spec
        return relay_pb2.TaskIdentity(
            task=spec.task, source=spec.source_id, epoch=spec.epoch, index=index, run_secret=spec.secret
        )


def read_chunks(spec: ReaderSpec, link: ReaderLink) -> TaskOutcome:
    """Take chunks and load them until there is none, or until told to stop. Closes ``link``.

    Raises the error that ended it: of a chunk, once it has been tried often enough, or of the link.
    """
    reader = _Reader(spec, link)
    try:
        return reader.run()
    except _StopReading:
        return TaskStopped()
    finally:
        reader.close()


class _StopReading(Exception):
    """The worker wants this reader to end: the chunk at hand is rolled back."""


class _Reader:
    def __init__(self, spec: ReaderSpec, link: ReaderLink) -> None:
        self._spec, self._link = spec, link
        self._plans = {(plan.table.schema, plan.table.name): plan for plan in spec.plans}
        self._source = ChunkSource(spec.source, spec.source_id)
        self._loader = ChunkLoader(spec.target, spec.store())
        self._judge = Judge(spec.target, spec.meta_schema)
        self._reported_at = 0.0

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
                    self._do(answer.chunk)
                case "finished":
                    return TaskDone()
                case "wait":
                    continue
                case _:
                    return TaskStopped()

    def _do(self, spec: relay_pb2.ChunkSpec) -> None:
        """One chunk; again after errors that pass. Raises the last error."""
        plan = self._plans[(spec.source_schema, spec.source_table)]
        chunk = Chunk(spec.number, tuple(spec.lower), tuple(spec.upper))
        self._reported_at = time.monotonic()
        done = self._load_stubbornly(spec, plan, chunk)
        report = relay_pb2.ChunkReport(
            chunk=spec,
            rows=done.rows,
            bytes=done.bytes,
            high=done.high.position.to_proto(),
            seconds=done.seconds,
        )
        if self._report(report):
            raise _StopReading

    def _load_stubbornly(self, spec: relay_pb2.ChunkSpec, plan: TablePlan, chunk: Chunk) -> Loaded:
        attempt = 0
        while True:
            try:
                return self._load(spec, plan, chunk)
            except ShardmergeError as error:
                self._source.close()
                self._loader.close()
                attempt += 1
                if not error.spec.retryable or attempt == _ATTEMPTS:
                    raise
                log.warning("chunk is tried again", table=plan.table.full_name, chunk=chunk.number, error=str(error))
                self._pause(spec, _BACKOFF_SECONDS * 2**attempt)

    def _report(self, report: relay_pb2.ChunkReport) -> bool:
        return self._link.report(report)

    def _pause(self, spec: relay_pb2.ChunkSpec, seconds: float) -> None:
        if self._report(relay_pb2.ChunkReport(chunk=spec)):
            raise _StopReading
        time.sleep(seconds)

    def _tell_progress(self, spec: relay_pb2.ChunkSpec, transaction: ChunkTransaction) -> None:
        """Once a second, so that a chunk that takes hours shows up and can be stopped."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_SECONDS:
            return
        self._reported_at = now
        report = relay_pb2.ChunkReport(chunk=spec, rows=transaction.count, bytes=transaction.bytes)
        if self._report(report):
            # Rows of the answer may still be on their way: only a new connection is in step.
            self._source.close()
            raise _StopReading

    def _load(self, spec: relay_pb2.ChunkSpec, plan: TablePlan, chunk: Chunk) -> Loaded:
        if is_whole(plan) or (not self._spec.always_watermarks and self._source.tells_position):
            return self._load_exact(spec, plan, chunk)
        return self._load_fixed_up(spec, plan, chunk)

    def _load_exact(self, spec: relay_pb2.ChunkSpec, plan: TablePlan, chunk: Chunk) -> Loaded:
        """Rows stream from the source's read to the target; nothing is held but a statement."""
        started = time.monotonic()
        with self._loader.transaction(plan, chunk) as transaction:
            if transaction.done is not None:
                return transaction.done
            stage = TableStage(plan, self._judge, self._link.evaluate) if needs_stage(plan) else None
            with self._source.exact(plan, chunk, stage) as (position, batches):
                for batch in batches:
                    transaction.add(batch)
                    self._tell_progress(spec, transaction)
            return _commit(transaction, Mark(position), started)

    def _load_fixed_up(self, spec: relay_pb2.ChunkSpec, plan: TablePlan, chunk: Chunk) -> Loaded:
        started = time.monotonic()
        # What filters say of a row is asked of the row as it is in the end, before mapping.
        has_rules = plan.transform is not None or any(rule.insert for rule in plan.filters)
        stage = TableStage(plan, self._judge, self._link.evaluate) if has_rules else None
        read = plan if stage is None else as_decoded(plan)
        low, found, high = self._source.between_watermarks(read, chunk)
        start, end = self._link.locate(low), self._link.locate(high)
        if start.relay_id != end.relay_id:
            raise _coded(errors.snapshot.RELAY_CHANGED, plan, chunk)
        rows = {key_of(read, row): row for row in found}
        hooks.reach("snapshot.fixing")
        if end.offset > start.offset:
            # With source keys: a row may be mapped to another key than the one that tells whether it belongs here.
            decoder = BlockDecoder(only(read), source_keys=True, source=plan.source)
            changes = changes_between(
                self._link,
                decoder,
                start.offset,
                end,
                changed=lambda: _coded(errors.snapshot.RELAY_CHANGED, plan, chunk),
                ended=lambda: _coded(errors.snapshot.RELAY_STREAM_ENDED, plan, chunk),
            )
            fix_up(rows, read, changes, lambda keys: self._source.inside(plan, chunk, keys))
        final = list(rows.values()) if stage is None else stage.history(list(rows.values()))
        with self._loader.transaction(plan, chunk) as transaction:
            if transaction.done is not None:
                return transaction.done
            transaction.add([b",".join(row) for row in final])
            self._tell_progress(spec, transaction)
            return _commit(transaction, Mark(high, end.relay_id, end.offset), started)


def _coded(spec: ErrorSpec, plan: TablePlan, chunk: Chunk) -> ShardmergeError:
    return spec(source=plan.source, number=chunk.number, schema=plan.table.schema, table=plan.table.name)


def _commit(transaction: ChunkTransaction, high: Mark, started: float) -> Loaded:
    transaction.flush()
    loaded = Loaded(transaction.count, transaction.bytes, time.monotonic() - started, high)
    transaction.commit(loaded)
    return loaded
