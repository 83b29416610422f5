"""Plans the chunks of a snapshot's tables in a thread, while readers copy the first ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

from shardmerge.proto import config_pb2, errors, failpoints
from shardmerge.proto.config import defaults
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import Backoff
from shardmerge.worker.core.cascades import CascadeKeys
from shardmerge.worker.core.mysql.cancellable_session import (
    ANSWER_SECONDS,
    cancellable,
    cancellable_session,
    close_quietly,
)
from shardmerge.worker.core.mysql.connection import Session, Side, coded_errors, connect, current_position, server_info
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.chunk_records import StoredChunk, divided_chunks
from shardmerge.worker.snapshot.chunk_store import SnapshotStore
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.dispenser import Dispenser, PlannedChunk
from shardmerge.worker.snapshot.progress import SnapshotProgress
from shardmerge.worker.snapshot.source.chunk_source import open_source
from shardmerge.worker.snapshot.statement_watch import StatementWatch
from shardmerge.worker.snapshot.table_planner import TablePlanner
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_BATCH_CHUNKS = 1000
_BATCH_SECONDS = 0.2
_LOADED_SECONDS = 0.05
_ATTEMPTS = 5
_BACKOFF = Backoff(0.4)


def wanted_rows(config: config_pb2.SubTaskConfig) -> int:
    """How many rows a chunk should have at most."""
    return max((config.snapshot.chunk_rows or defaults.CHUNK_ROWS) // max(config.chunk_divisor, 1), 1)


def with_smaller_chunks(
    session: Session, plans: Sequence[TablePlan], stored: Sequence[StoredChunk], rows: int
) -> dict[int, list[StoredChunk]]:
    """All chunks of each table that has planned chunks with more than ``rows`` rows: these are cut. Loaded chunks keep
    their rows and high watermarks. ``session``: a raw one to the source. Raises ``pymysql.MySQLError`` and
    PLAN_STUCK."""
    found: dict[int, list[StoredChunk]] = {}
    for plan in plans:
        mine = [item for item in stored if item.shard == plan.shard]
        planner = TablePlanner(session, plan, rows)
        bounds = {item.chunk.number: planner.within(item.chunk) for item in mine if item.loaded is None}
        if any(bounds.values()):
            found[plan.shard] = divided_chunks(mine, bounds)
    return found


class ChunkPlanner(threading.Thread):
    """The thread that plans one table after the other, records the chunks and adds them to the dispenser."""

    def __init__(
        self,
        context: RunContext,
        plans: Sequence[TablePlan],
        stored: Sequence[StoredChunk],
        dispenser: Dispenser,
        progress: SnapshotProgress,
        watch: StatementWatch,
        stop: StopSignal,
        cascades: CascadeKeys,
    ) -> None:
        """``stop``: this thread's own, a child of the unit's. ``cascades``: see
        :class:`shardmerge.worker.snapshot.unit.SnapshotUnit`."""
        super().__init__(name=f"planner-{context.config.task}", daemon=True)
        self._source_id = context.config.source_id
        self._source_endpoint = context.source_endpoint
        self._target_endpoint = context.target_endpoint
        self._chunk_rows = wanted_rows(context.config)
        by_number = {plan.shard: plan for plan in plans}
        self._store = SnapshotStore(context.who, context.epoch)
        self._plans = [by_number[number] for number in cascades.in_order(by_number)] if cascades.keys else plans
        self._cascades = cascades
        self._dispenser, self._progress, self._watch = dispenser, progress, watch
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
                self._dispenser.planning_is_retried(error)
            if self._dispenser.wait_ending(_BACKOFF.seconds(attempt)):
                return

    def _plan_tables(self) -> None:
        with (
            ExitStack() as sources,
            cancellable(
                connect(self._target_endpoint, Side.TARGET, name="target", read_timeout=ANSWER_SECONDS), self._unwanted
            ) as target,
        ):
            source = sources.enter_context(self._open_source())
            for plan in self._plans:
                last = self._last.get(plan.shard)
                if last is None or not last.is_last:
                    if plan.is_cascaded and not self._await_loaded(self._cascades.ancestors(plan.shard)):
                        return
                    try:
                        self._plan_table(source, target, plan, last)
                    except ShardmergeError:
                        if not self._is_interrupted(plan):
                            raise
                        close_quietly(source)
                        source = sources.enter_context(self._open_source())
                if self._dispenser.is_ending:
                    return
            self._dispenser.complete()

    def _await_loaded(self, tables: frozenset[int]) -> bool:
        """Wait until all chunks of ``tables`` are loaded: then a change of their rows after the copy of this table
        finds the rows that it caused the source to change. False: the unit ends first, or a copy is interrupted."""
        while not self._progress.are_loaded(tables):
            if self._dispenser.wait_ending(_LOADED_SECONDS) or not tables.isdisjoint(self._watch.known()):
                self._dispenser.complete()
                return False
        return True

    def _is_interrupted(self, plan: TablePlan) -> bool:
        """Whether an error of a table may come from a statement on it. False also when that cannot be found out."""
        endpoint = self._source_endpoint
        try:
            with cancellable_session(self._unwanted, endpoint, Side.SOURCE, name=self._source_id) as session:
                self._watch.locate(current_position(session, server_info(session)))
            return plan.shard in self._watch.search()
        except ShardmergeError as error:
            log.debug("whether the copy is interrupted is not known", reason=str(error))
            return False

    def _open_source(self) -> AbstractContextManager[Session]:
        return cancellable(open_source(self._source_endpoint, self._source_id), self._unwanted)

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
            if chunk is None or self._dispenser.is_ending or (due and plan.shard in self._watch.known()):
                return

    def _publish(self, target: Session, plan: TablePlan, batch: Sequence[Chunk]) -> None:
        failpoints.hit("snapshot.planning")
        with coded_errors(self._target_endpoint, Side.TARGET, "target"):
            self._store.add_chunks(target, plan.shard, batch, self._last.get(plan.shard))
        self._last[plan.shard] = batch[-1]
        self._progress.planned(plan.shard, len(batch), complete=batch[-1].is_last)
        self._dispenser.add(PlannedChunk(plan, chunk) for chunk in batch)
        failpoints.hit("snapshot.planned")
