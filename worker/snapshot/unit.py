"""The snapshot unit: plans, dispenses, reads and loads every table of a subtask, then finishes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.config import defaults
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.cascades import CascadeKeys
from shardmerge.worker.core.mysql.cancellable_session import cancellable, cancellable_session
from shardmerge.worker.core.mysql.connection import Session, Side, coded_errors, current_position, server_info
from shardmerge.worker.core.mysql.information_schema import read_tables
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Column, Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.task_runner import TaskFailed
from shardmerge.worker.ddl.decide.routed_statements import short_text
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.snapshot.chunk_key import chunk_key
from shardmerge.worker.snapshot.chunk_planner import ChunkPlanner, wanted_rows, with_smaller_chunks
from shardmerge.worker.snapshot.chunk_records import StoredChunk, missing_chunk
from shardmerge.worker.snapshot.chunk_store import SnapshotStore
from shardmerge.worker.snapshot.chunks import rows_per_chunk
from shardmerge.worker.snapshot.dispenser import Dispenser, PlannedChunk
from shardmerge.worker.snapshot.interrupting_statements import InterruptingStatements
from shardmerge.worker.snapshot.limits.rate_limiter import ChunkSize, RateLimiter, RateLimits
from shardmerge.worker.snapshot.limits.reader_times import ReaderSeconds, ReaderTimes
from shardmerge.worker.snapshot.limits.source_load import LoadLimits
from shardmerge.worker.snapshot.load_monitor import LoadMonitor
from shardmerge.worker.snapshot.progress import SnapshotProgress
from shardmerge.worker.snapshot.reader.chunk_reader import ReaderSpec, ReaderTask
from shardmerge.worker.snapshot.source.chunk_source import open_source
from shardmerge.worker.snapshot.statement_watch import StatementWatch
from shardmerge.worker.snapshot.table_planner import MAX_CHUNK_BYTES, is_whole
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.history.interrupted_copies import InterruptedCopy
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, Stopped
from shardmerge.worker.unit.growing_job import GrowingJob
from shardmerge.worker.unit.run_context import RunContext, RunningSnapshot

log = get_logger()

_NO_CASCADES = CascadeKeys()
_LOOK_SECONDS = 0.1
_LARGE_ROWS = 100_000


class SnapshotUnit:
    """Copies a subtask's tables; a ProcessUnit. The relay log must already reach back to the subtask's start."""

    def __init__(
        self,
        context: RunContext,
        plans: tuple[TablePlan, ...],
        valid_from: Mapping[int, SourcePosition],
        scope: TableScope | None = None,
        check_end: Callable[[RelayOffset], None] | None = None,
        cascades: CascadeKeys = _NO_CASCADES,
        *,
        computed: bool = False,
    ) -> None:
        """``plans``: of the tables to copy; their target tables exist (worker/target/tables/make_targets.py).
        ``valid_from``: positions at which the tables have these structures, by number. ``scope``: the tables whose
        statements no fix-up may ignore; None: all tables of the rules. ``check_end``: raises the coded error if the
        task ends before that offset: no chunk may hold changes up to there.
        ``cascades``: a table that they change is copied after the tables whose rows change it. ``computed``: the target
        has computed the structures after statements, and may describe them in other words than the source."""
        self._computed = computed
        self._check_end = check_end
        self._cascades = cascades
        config = context.config
        self._context = context
        self._plans = plans
        self._valid_from = valid_from
        self._scope = TableScope(context.rules) if scope is None else scope
        self._interrupted: Mapping[int, Statement] = {}
        self._source_id = config.source_id
        self._store = SnapshotStore(context.who, context.epoch)
        self._progress = SnapshotProgress(())
        self._dispenser: Dispenser | None = None
        self._job: GrowingJob | None = None

    def status(self) -> pb.LoadStatus:
        status, retried = self._progress.status(), self._retried
        if retried is not None:
            status.retried.CopyFrom(error_to_proto(retried))
        return status

    @property
    def _retried(self) -> ShardmergeError | None:
        """After which error chunks are planned or read again now."""
        dispenser = self._dispenser
        return None if dispenser is None else dispenser.retried

    def seconds_since_chunk(self) -> float | None:
        """Since a chunk was committed last; None: not in this run."""
        return self._progress.seconds_since_chunk()

    def reader_seconds(self) -> ReaderSeconds:
        """What its readers have spent their time on."""
        dispenser = self._dispenser
        return ReaderSeconds() if dispenser is None else dispenser.times.read()

    def throttle(self) -> str:
        """Which limit delays the next chunk, and by how much, one phrase; "": none does."""
        dispenser = self._dispenser
        return "" if dispenser is None else dispenser.waiting_for()

    @property
    def readers(self) -> int:
        return self._context.config.snapshot.threads or defaults.READERS

    @property
    def interrupted(self) -> Mapping[int, Statement]:
        """The tables that are copied in part, by number, with the statements that have interrupted their copies. Once
        :meth:`run` has finished."""
        return self._interrupted

    def activity(self) -> str:
        """What the readers wait for; while they read, "" or the number of rows read of large chunks."""
        dispenser = self._dispenser
        waiting_for = "" if dispenser is None else dispenser.waiting_for()
        retried = self._retried
        if retried is not None and not waiting_for:
            return f"the copy of the history is retried after: {retried}"
        missing = 0 if self._job is None else self._job.missing
        if missing and not waiting_for:
            return f"{missing} of {self.readers} chunk readers wait for a free Spark slot; the others copy"
        reading_rows = self._progress.status().reading_rows
        if waiting_for or reading_rows < _LARGE_ROWS:
            return waiting_for
        return f"{reading_rows:,} rows of large chunks are read and not committed yet"

    def run(self, stop: StopSignal) -> Outcome:
        turn = self._context.copy_turn
        while not turn.acquire(timeout=_LOOK_SECONDS):
            if stop.is_set:
                return Stopped()
        try:
            return self._run(stop)
        except ShardmergeError as error:
            return Stopped() if stop.is_set else Failed(error)
        except Exception as error:
            log.exception("snapshot unit", task=self._context.config.task, source=self._source_id)
            return Failed(errors.worker.INTERNAL(kind=type(error).__name__, where="the snapshot unit", reason=error))
        finally:
            turn.release()

    def _run(self, stop: StopSignal) -> Outcome:
        context, config = self._context, self._context.config
        plans = self._plans
        statements = InterruptingStatements(
            self._scope, {(plan.table.schema, plan.table.name): plan.shard for plan in plans}
        )
        check = () if self._check_end is None else (self._check_end,)
        watch = StatementWatch(context.relay, self._valid_from, statements.interrupted_by, stop, *check)
        stored = self._prepare(watch, stop)
        progress = self._progress = SnapshotProgress(plans, stored)
        if all(item.loaded is not None for item in stored) and progress.status().plan_complete:
            self._check_complete(watch, stop)
            return Finished()
        limits = RateLimits(config.snapshot.rows_per_second, config.snapshot.bytes_per_second)
        limiter, times = RateLimiter(limits, self._first_chunk_size()), ReaderTimes(context.on_reader_time)
        dispenser = self._dispenser = Dispenser(progress, stop, limiter, watch, times=times)
        by_shard = {plan.shard: plan for plan in plans}
        dispenser.add(PlannedChunk(by_shard[item.shard], item.chunk) for item in stored if item.loaded is None)
        planner = ChunkPlanner(context, plans, stored, dispenser, progress, watch, stop.child(), self._cascades)
        monitor = self._load_monitor(dispenser, stop)
        context.compiled.admit(plans)
        readers = self.readers
        context.registry.register_dispenser(
            RunningSnapshot(
                config.task,
                self._source_id,
                context.epoch,
                dispenser,
                statements.blocks_fix_up,
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
            job = self._job = GrowingJob(
                context.task_runner,
                context.free_slots,
                f"snapshot {config.task} {self._source_id}",
                readers,
                ReaderTask(self._reader_spec()),
                stop,
                dispenser.fail,
            )
            outcomes = job.run()
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
        self._check_complete(watch, stop)
        return Finished()

    def _reader_spec(self) -> ReaderSpec:
        context, config = self._context, self._context.config
        return ReaderSpec(
            address=context.lane_address,
            secret=context.run_secret,
            task=config.task,
            source_id=self._source_id,
            epoch=context.epoch,
            source=context.source_endpoint.without_secrets(),
            target=context.target_endpoint.without_secrets(),
            meta_schema=config.meta_schema,
            plans=self._plans,
            always_watermarks=config.snapshot.position == "watermark",
        )

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
            most = wanted_rows(self._context.config)
            rows = min(rows, rows_per_chunk(most, rows, table.byte_estimate, MAX_CHUNK_BYTES))
        return ChunkSize(rows, rows * table.byte_estimate // max(table.row_estimate, 1))

    def _prepare(self, watch: StatementWatch, stop: StopSignal) -> list[StoredChunk]:
        """Check the tables' structures and record the tables; returns the chunks that earlier runs recorded."""
        watch.search()
        with self._source_session(stop) as source:
            self._check_structures(source, watch)
        with self._target_session(stop) as target:
            self._store.begin(target, self._plans)
            stored = self._read_chunks(target)
            if self._context.config.chunk_divisor > 1:
                stored = self._divide(target, stored, stop)
            return stored

    def _divide(self, target: Session, stored: Sequence[StoredChunk], stop: StopSignal) -> list[StoredChunk]:
        """The target had no memory for a chunk: cut the chunks that are planned and not loaded. Their rows were rolled
        back, and no reader has begun, so each part gets its own watermarks when it is read."""
        endpoint, rows = self._context.source_endpoint, wanted_rows(self._context.config)
        with (
            cancellable(open_source(endpoint, self._source_id), stop) as source,
            coded_errors(endpoint, Side.SOURCE, self._source_id),
        ):
            smaller = with_smaller_chunks(source, self._plans, stored, rows)
        for shard, chunks in smaller.items():
            self._store.replace_chunks(target, shard, chunks)
            log.warning("planned chunks are divided", task=self._context.config.task, shard=shard, rows=rows)
        return self._read_chunks(target)

    def _read_chunks(self, target: Session) -> list[StoredChunk]:
        """The chunks of this unit's tables: another unit may have copied other tables of the subtask. Raises
        RECORDS_LOST and ``pymysql.MySQLError``."""
        mine = {plan.shard: plan for plan in self._plans}
        found = [item for item in self._store.read_chunks(target) if item.shard in mine]
        missing = missing_chunk(found)
        if missing is not None:
            endpoint, config = self._context.target_endpoint, self._context.config
            raise errors.replicate.RECORDS_LOST(
                task=config.task,
                source=self._source_id,
                host=endpoint.host,
                port=endpoint.port,
                schema=config.meta_schema,
                missing=f"that of chunk {missing[1]} of {mine[missing[0]].table.full_name}",
            )
        return found

    def _source_session(self, stop: StopSignal) -> AbstractContextManager[Session]:
        return cancellable_session(stop, self._context.source_endpoint, Side.SOURCE, name=self._source_id)

    def _target_session(self, stop: StopSignal) -> AbstractContextManager[Session]:
        return cancellable_session(stop, self._context.target_endpoint, Side.TARGET, name="target")

    def _check_structures(self, source: Session, watch: StatementWatch) -> None:
        """Check that no table was changed by a statement that is not in the binlog.

        Raises TABLE_GONE, STRUCTURE_CHANGED and ``pymysql.MySQLError``.
        """
        context = self._context
        tables = [plan.table for plan in self._plans]
        names = [(table.schema, table.name) for table in tables]
        found = {(table.schema, table.name): table for table in read_tables(source, names, source=self._source_id)}
        changed = [(plan, found.get((plan.table.schema, plan.table.name))) for plan in self._plans]
        changed = [(plan, now) for plan, now in changed if now is None or self._difference(plan.table, now)]
        if not changed:
            return
        watch.locate(current_position(source, server_info(source)))
        explained = watch.search()
        for plan, now in changed:
            if plan.shard in explained:
                continue
            table = plan.table
            names_of = {
                "source": self._source_id,
                "schema": table.schema,
                "table": table.name,
                "task": context.config.task,
            }
            if now is None:
                raise errors.snapshot.TABLE_GONE(**names_of)
            raise errors.snapshot.STRUCTURE_CHANGED(**names_of, difference=self._difference(table, now))

    def _difference(self, recorded: Table, now: Table) -> str:
        return structure_difference(recorded, now, computed=self._computed)

    def _check_complete(self, watch: StatementWatch, stop: StopSignal) -> None:
        """Check at the servers that every chunk is loaded, apart from tables whose copy is interrupted."""
        with self._target_session(stop) as target:
            chunks = self._read_chunks(target)
        ended = {item.shard for item in chunks if item.chunk.is_last}
        left = Counter(item.shard for item in chunks if item.loaded is None)
        left.update(plan.shard for plan in self._plans if plan.shard not in ended)
        with self._source_session(stop) as source:
            self._check_structures(source, watch)
        statements = watch.search()
        apart = self._cascades.tables & left.keys() & statements.keys()
        if apart:
            names = ", ".join(plan.table.full_name for plan in self._plans if plan.shard in apart)
            raise errors.replicate.CASCADES_AWAY(
                task=self._context.config.task,
                source=self._source_id,
                tables=names,
                reason=f"the statement at {statements[min(apart)].position} has interrupted the copy",
            )
        unexplained = sum(count for shard, count in left.items() if shard not in statements)
        if unexplained:
            raise errors.snapshot.INCOMPLETE(task=self._context.config.task, source=self._source_id, left=unexplained)
        self._interrupted = {shard: statements[shard] for shard in left}
        for plan in self._plans:
            if plan.shard in self._interrupted:
                statement = self._interrupted[plan.shard]
                log.warning(
                    "a statement has interrupted the copy of a table: the rest is copied after it",
                    task=self._context.config.task,
                    source=self._source_id,
                    table=plan.table.full_name,
                    position=str(statement.position),
                    statement=short_text(statement),
                )


def interrupted_copies_of(
    interrupted: Mapping[int, Statement],
    plans: Iterable[TablePlan],
    before: Mapping[int, InterruptedCopy] = MappingProxyType({}),
) -> dict[int, InterruptedCopy]:
    """The records of interrupted copies. ``interrupted``: see :attr:`SnapshotUnit.interrupted`; ``before``: the earlier
    interruptions of these tables."""
    found: dict[int, InterruptedCopy] = {}
    for plan in plans:
        statement = interrupted.get(plan.shard)
        if statement is not None:
            last = before.get(plan.shard)
            number = 1 if last is None else last.number + 1
            found[plan.shard] = InterruptedCopy(number, StatementPlace.of(statement), chunk_key(plan))
    return found


def structure_difference(before: Table, now: Table, *, computed: bool = False) -> str:
    """Describes how the structure of a table's rows changed; "" when it did not. Further keys do not matter.
    ``computed``: see :class:`SnapshotUnit`."""
    old = {column.name: _compared(column, computed=computed) for column in before.columns}
    new = {column.name: _compared(column, computed=computed) for column in now.columns}
    if list(old.items()) != list(new.items()):
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


def _compared(column: Column, *, computed: bool) -> Column:
    return column.comparable(with_collation=False) if computed else column


def _column_text(column: Column) -> str:
    parts = [column.type_text, column.collation, "NULL" if column.nullable else "NOT NULL"]
    return " ".join(part for part in parts if part)
