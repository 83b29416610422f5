"""Runs one comparison of a subtask with its target: plans the pieces of work, runs the Spark tasks, reports findings.

For every shard table the first of these methods that is possible is used:

* Its keys are integers whose order the mapping keeps, and no other shard's rows lie between them at the target: each
  chunk is compared with the same range of the target, in both directions at once.
* Otherwise each chunk's keys are looked up at the target. If it is also known which of the target's rows are this shard
  table's, each of their keys is looked up in the shard table. If it is not known, extra rows are not searched for, and
  the report states that.

Shard tables without a key are compared as a multiset of rows (unkeyed.py).

Rows of the target that lie in no shard's range of `partition id` are searched for once, by the first of the task's
sources.

A request for references compares no rows: it searches for rows of the target whose partner is missing (orphans.py).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto import errors, failpoints, relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.cancellable_session import ANSWER_SECONDS, cancellable, cancellable_session
from shardmerge.worker.core.mysql.connection import Session, Side, coded_errors, connect, dialect_of
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.mysql.show_create import read_create_texts
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.spark.run_access import new_secret
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.task_runner import TaskFailed
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.rules.relations import NoRelation, Relation, relations_of
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.source.chunk_source import open_source
from shardmerge.worker.snapshot.table_planner import TablePlanner
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.quarantine.held_store import count_keys
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.tables.row_ownership import NotSeparable
from shardmerge.worker.unit.growing_job import GrowingJob
from shardmerge.worker.unit.run_context import RunContext, RunningSnapshot
from shardmerge.worker.verify.compare.compared_relations import (
    ComparedRelation,
    Definitions,
    RelationNotCompared,
    compared_relations,
)
from shardmerge.worker.verify.compare.compared_tables import (
    ComparedTable,
    NotCompared,
    UnkeyedTables,
    compared_table,
    unkeyed_tables,
)
from shardmerge.worker.verify.compare.patience import Patience
from shardmerge.worker.verify.compare.task import CompareSpec, CompareTask
from shardmerge.worker.verify.compare.work_queue import (
    NoChunks,
    Work,
    WorkQueue,
    left_out_table,
    skipped_relation,
    skipped_table,
)

log = get_logger()

_DEFAULT_THREADS = 2
_DEFAULT_ROWS = 1000
_CHUNK_ROWS = 8096
_FRAME_SECONDS = 1.0

_runs = itertools.count(time.time_ns() // 1_000_000)


_AWAY = "it is parked at a sharding DDL, or it is joining the task: its rows are not applied by the task's own lanes"

_PARTIAL = "a statement has interrupted the copy of its history, and the rest is not copied yet"


class Comparison:
    """One comparison; it runs once. ``lowest``: how far every lane has committed; ``is_running``: whether the subtask's
    run that was compared still continues."""

    def __init__(
        self,
        context: RunContext,
        plans: Sequence[TablePlan],
        request: pb.CompareRequest,
        stop: StopSignal,
        lowest: Callable[[], RelayOffset | None],
        is_running: Callable[[], bool],
    ) -> None:
        self._context, self._plans, self._request = context, tuple(plans), request
        self._stop, self._lowest, self._is_running = stop, lowest, is_running
        self.task = context.config.task
        self.identity = f"{self.task}/compare"
        self.run_number = next(_runs)
        self._access = replace(context.access, secret=new_secret())
        self.tasks = request.threads or _DEFAULT_THREADS
        """The most Spark tasks that work on the comparison; they are numbered from 0."""
        self.queue: WorkQueue | None = None
        self._compared: tuple[ComparedTable | UnkeyedTables, ...] = ()
        self._relations: tuple[ComparedRelation, ...] = ()
        self._over = threading.Event()

    def frames(self) -> Iterator[pb.CompareFrame]:
        """Yields progress about once a second, rows as they are found, and the end. Raises no catalogue error: the last
        frame carries it."""
        skipped: list[pb.ComparedTable] = []
        try:
            if self._request.references:
                self._relations, refused = self._related_tables()
                skipped = [skipped_relation(relation) for relation in refused]
            else:
                found = self._tables()
                skipped = [skipped_table(table) for table in found if isinstance(table, NotCompared)]
                self._compared = tuple(table for table in found if not isinstance(table, NotCompared))
            reported = [*self._compared, *(shard for relation in self._relations for shard in relation.shards)]
            queue = self.queue = WorkQueue(reported, self._request.most_rows or _DEFAULT_ROWS, self._stop)
            yield from self._run(queue)
            if queue.failure is not None:
                raise queue.failure
            end = pb.CompareEnd(tables=[*self._with_held(queue.tables()), *skipped, *self._left_out()])
        except ShardmergeError as error:
            reports = self.queue.tables() if self.queue is not None else []
            end = pb.CompareEnd(tables=[*reports, *skipped], error=error_to_proto(error))
        yield pb.CompareFrame(end=end)

    def is_task(self, who: relay_pb2.TaskIdentity) -> bool:
        """Whether the caller is one of the tasks of this run."""
        source = self._context.source.source_id
        is_of_run = (who.source, who.epoch) == (source, self.run_number) and who.index < self.tasks
        return is_of_run and self._access.admits(who)

    def lanes(self) -> pb.LanesPlace:
        relay = self._context.relay
        place = pb.LanesPlace(relay_id=relay.relay_id)
        lowest = self._lowest()
        if lowest is not None:
            place.committed.CopyFrom(lowest.to_proto())
        return place

    def _run(self, queue: WorkQueue) -> Iterator[pb.CompareFrame]:
        context, registry = self._context, self._context.registry
        if not self._compared and not self._relations:
            return
        stop = self._stop
        registry.register_dispenser(
            RunningSnapshot(
                self.identity,
                context.source.source_id,
                self.run_number,
                NoChunks(),
                RoutedScope(TableScope(context.rules)),
                stop.child(),
                self.tasks,
                self._access,
            )
        )
        threads = [
            threading.Thread(target=self._failing_queue(queue, work), name=name, daemon=True)
            for name, work in (("compare-plan", self._plan_all), ("compare-spark", self._run_tasks))
        ]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(_FRAME_SECONDS / len(threads))
                if not self._is_running():
                    queue.fail(errors.compare.RELAY_CHANGED(task=context.config.task, source=context.source.source_id))
                yield from self._report(queue)
            yield from self._report(queue)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            registry.unregister_dispenser(self.identity, self.run_number)

    def _report(self, queue: WorkQueue) -> Iterator[pb.CompareFrame]:
        for row in queue.rows():
            yield pb.CompareFrame(row=row)
        yield pb.CompareFrame(progress=queue.progress())

    def _failing_queue(self, queue: WorkQueue, work: Callable[[WorkQueue], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work(queue)
            except ShardmergeError as error:
                if not self._stop.is_set:
                    queue.fail(error)
            except Exception as error:
                log.exception("comparison", source=self._context.source.source_id)
                queue.fail(errors.worker.INTERNAL(kind=type(error).__name__, where="a comparison", reason=error))

        return run

    def _run_tasks(self, queue: WorkQueue) -> None:
        context, config = self._context, self._context.config
        spec = CompareSpec(
            address=context.lane_address,
            secret=self._access.secret,
            identity=self.identity,
            run=self.run_number,
            subtask=context.who,
            source=context.source_endpoint.without_secrets(),
            target=context.target_endpoint.without_secrets(),
            tables=self._compared,
            relations=self._relations,
            repair=self._request.repair,
            most_rows=self._request.most_rows or _DEFAULT_ROWS,
        )
        job = GrowingJob(
            context.task_runner,
            context.free_slots,
            f"compare {config.task} {context.source.source_id}",
            self.tasks,
            CompareTask(spec),
            self._stop,
            lambda error: None if self._stop.is_set else queue.fail(error),
        )
        outcomes = job.run()
        for outcome in outcomes:
            if isinstance(outcome, TaskFailed):
                raise outcome.error

    # --- the compared tables

    def _tables(self) -> list[ComparedTable | UnkeyedTables | NotCompared]:
        """Raises ``pymysql.MySQLError`` as coded errors."""
        wanted = [plan for plan in self._plans if _is_wanted(plan, self._request)]
        with cancellable_session(self._stop, self._context.target_endpoint, Side.TARGET, name="target") as session:
            away, everyone = self._read_all_plans(session)
            partial = interrupted_copies.read(session, self._context.who)
            signed_zero = dialect_of(session).has_negative_zero
            first = min(self._request.task_sources, default="") == self._context.source.source_id
            found: list[ComparedTable | UnkeyedTables | NotCompared] = []
            unkeyed: dict[str, list[TablePlan]] = {}
            searched: set[str] = set()
            for plan in wanted:
                if plan.shard in partial:
                    found.append(NotCompared(plan, _PARTIAL))
                    continue
                if not plan.key:
                    unkeyed.setdefault(plan.target_name, []).append(plan)
                    continue
                target = read_table(session, plan.target_schema, plan.target_table, source="target")
                strays = first and plan.target_name not in searched
                found.append(compared_table(plan, target, everyone, strays=strays, signed_zero=signed_zero))
                if isinstance(found[-1], ComparedTable):
                    searched.add(plan.target_name)
            for plans in unkeyed.values():
                target = read_table(session, plans[0].target_schema, plans[0].target_table, source="target")
                tables = unkeyed_tables(
                    plans, target, everyone, may_divide=self._request.may_divide, signed_zero=signed_zero
                )
                found += [tables] if isinstance(tables, UnkeyedTables) else tables
            found += (NotCompared(plan, _AWAY) for plan in away if _is_wanted(plan, self._request))
            return found

    def _left_out(self) -> Iterator[pb.ComparedTable]:
        if not self._request.references:
            yield from (left_out_table(plan) for plan in self._plans if _is_named(plan, self._request.left_out))

    def _related_tables(self) -> tuple[tuple[ComparedRelation, ...], list[RelationNotCompared]]:
        """The references that are compared, and those that are not. Raises coded errors of both servers."""
        context = self._context
        with cancellable_session(self._stop, context.target_endpoint, Side.TARGET, name="target") as target:
            away, everyone = self._read_all_plans(target)
            partial = interrupted_copies.read(target, context.who)
            plans = [*self._plans, *away]
            with cancellable_session(
                self._stop, context.source_endpoint, Side.SOURCE, name=context.source.source_id
            ) as source:
                creations = read_create_texts(source, [(plan.table.schema, plan.table.name) for plan in plans])
            sources = dict(zip((plan.shard for plan in plans), creations, strict=True))
            wanted = {plan.shard for plan in plans if _is_wanted(plan, self._request)}
            related = [each for each in relations_of(context.rules, plans, sources) if each.child.shard in wanted]
            excluded = {plan.shard: _AWAY for plan in away} | dict.fromkeys(partial, _PARTIAL)
            found, refused = compared_relations(
                related, Definitions(sources, self._target_tables(target, related), everyone, excluded)
            )
        return tuple(found), refused

    def _target_tables(
        self, session: Session, relations: Sequence[Relation | NoRelation]
    ) -> dict[str, tuple[Table, str]]:
        targets = {
            plan.target: plan.target_name
            for relation in relations
            if isinstance(relation, Relation)
            for plan in (relation.child, relation.parent)
        }
        found: dict[str, tuple[Table, str]] = {}
        for target, name in sorted(targets.items()):
            table = read_table(session, *target.names, source="target")
            if table is not None:
                found[name] = table, read_create_texts(session, [target.names])[0]
        return found

    def _with_held(self, reports: list[pb.ComparedTable]) -> list[pb.ComparedTable]:
        """Add to each table the number of its keys in quarantine: those rows differ."""
        context = self._context

        def count(session: Session) -> None:
            for table, answer in zip(self._compared, reports[: len(self._compared)], strict=True):
                if isinstance(table, UnkeyedTables):  # only rows with a key are held
                    continue
                answer.held_keys = count_keys(session, context.who, (table.plan.shard,))

        # This session does not end with ``stop``: that is set by now.
        context.at_target(count)
        return reports

    def _read_all_plans(self, session: Session) -> tuple[list[TablePlan], list[TablePlan] | str]:
        """The plans of this source's tables that its own lanes do not apply now; and the plans of all shard tables, of
        all the task's sources and of other tasks, by their records at the target, or the reason why they are not
        known."""
        found = read_target_members(session, self._context.who, self._request.task_sources)
        applied = {plan.shard for plan in self._plans}
        away = [plan for number, plan in sorted(found.own.items()) if number not in applied]
        if found.unrecorded_sources:
            return away, (
                f"source {found.unrecorded_sources[0]} of the task does not replicate yet, so it is not known which "
                "rows are its own"
            )
        return away, [*self._plans, *away, *found.same_task, *found.other_tasks]

    # --- the pieces of work

    def _plan_all(self, queue: WorkQueue) -> None:
        """Plan the pieces of all tables. A server that is away is waited for, and the plan continues where it was."""
        left = deque(self._parts())
        patience = Patience()
        last: Chunk | None = None
        while left:
            try:
                with self._plan_sessions() as (source, target):
                    while left:
                        failpoints.hit("compare.planning")
                        for chunk in self._chunks(left[0], source, target, last):
                            if not queue.put(_work(left[0], chunk)):
                                return
                            last = chunk
                            patience.succeeded()
                        left.popleft()
                        last = None
            except ShardmergeError as error:
                pause = patience.pause(error)
                if pause is None or self._stop.is_set:
                    raise
                log.warning("the plan of a comparison is retried", error=str(error), again_in=pause)
                if self._stop.wait(pause):
                    raise
        queue.complete()

    @contextmanager
    def _plan_sessions(self) -> Generator[tuple[Session, Session]]:
        context, stop = self._context, self._stop
        target = connect(context.target_endpoint, Side.TARGET, name="target", raw=True, read_timeout=ANSWER_SECONDS)
        with (
            cancellable(target, stop),
            cancellable(open_source(context.source_endpoint, context.source.source_id), stop) as source,
        ):
            yield source, target

    def _parts(self) -> Iterator[_Part]:
        for number, relation in enumerate(self._relations):
            scan = relation.scan()
            plan = replace(scan.plan, table=scan.target, source="target", one_lane=False)
            yield _Part(number, Work.KIND_REFERENCE, plan, Side.TARGET)
        for number, table in enumerate(self._compared):
            if isinstance(table, UnkeyedTables):
                yield _Part(number, Work.KIND_MULTISET)
                continue
            # A further unique key does not require reading the table in one piece here, because nothing is loaded.
            plan = replace(table.plan, one_lane=False)
            yield _Part(number, Work.KIND_RANGE if table.by_range else Work.KIND_KEYS, plan)
            if not table.by_range and not isinstance(table.owned, NotSeparable):
                back = replace(plan, table=table.target, source="target")
                yield _Part(number, Work.KIND_BACK, back, Side.TARGET)
            if table.stray:
                yield _Part(number, Work.KIND_STRAY)

    def _chunks(self, part: _Part, source: Session, target: Session, last: Chunk | None) -> Iterator[Chunk | None]:
        """Those after ``last``; one None if the part has no chunks. Raises coded errors."""
        context = self._context
        if part.plan is None:
            yield None
        elif part.side is Side.TARGET:
            with coded_errors(context.target_endpoint, Side.TARGET, "target"):
                yield from TablePlanner(target, part.plan, _CHUNK_ROWS).chunks(last)
        else:
            with coded_errors(context.source_endpoint, Side.SOURCE, context.source.source_id):
                yield from TablePlanner(source, part.plan, _CHUNK_ROWS).chunks(last)


@dataclass(frozen=True, slots=True)
class _Part:
    """Pieces of one kind of table ``number``. ``plan``: how the table at ``side`` is cut; None: it is one piece."""

    number: int
    kind: Work.Kind
    plan: TablePlan | None = None
    side: Side = Side.SOURCE


def _work(part: _Part, chunk: Chunk | None) -> pb.CompareWork:
    work = pb.CompareWork(kind=part.kind, table=part.number)
    if chunk is not None:
        work.number = chunk.number
        work.lower.extend(chunk.lower)
        work.upper.extend(chunk.upper)
    return work


def _is_wanted(plan: TablePlan, request: pb.CompareRequest) -> bool:
    return (not request.tables or _is_named(plan, request.tables)) and not _is_named(plan, request.left_out)


def _is_named(plan: TablePlan, names: Sequence[str]) -> bool:
    own = {plan.table.dotted, plan.target.dotted}
    return not own.isdisjoint(names)
