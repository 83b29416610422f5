"""One comparison of a subtask with its target: plans the pieces of work, runs the Spark tasks, tells what they find.

For every shard table, the first that holds:

* its keys are integers whose order the mapping keeps, and no other shard's rows lie between them at the target: each
  chunk is compared with the same range of the target, both ways at once;
* else each chunk's keys are looked up at the target, and, where it is known which of the target's rows are this shard
  table's, every key of those is looked up in the shard table. Where it is not known, rows that are too many are not
  looked for, and that is said.

Rows of the target that lie in no shard's range of `partition id` are looked for once, by the first of the task's
sources.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from proto import compare_pb2 as pb
from proto import errors, relay_pb2, rpc
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.compare.desk import Desk, NoChunks, Works, passed_over
from worker.compare.owned import Unknown
from worker.compare.sides import Who
from worker.compare.tables import ComparedTable, NotCompared, compared_table
from worker.compare.task import CompareSpec, CompareTask
from worker.connection import Session, Side, coding, connect, quote_name, rows
from worker.context import RunningSnapshot, SubTaskContext
from worker.cutoff import ANSWER_SECONDS, session_until, until_stopped
from worker.ddl.everyone import everyone
from worker.ddl.routed import RoutedScope
from worker.ddl.tables import TableScope
from worker.plan import TablePlan
from worker.position import RelayOffset
from worker.quarantine.store import count_keys
from worker.run_access import new_secret
from worker.schema import read_table
from worker.snapshot.chunks import Chunk
from worker.snapshot.plan import TablePlanner
from worker.snapshot.source import open_source
from worker.spark import TaskFailed
from worker.unit import StopSignal

log = get_logger()

_DEFAULT_THREADS = 2
_DEFAULT_ROWS = 1000
_CHUNK_ROWS = 8096
_FRAME_SECONDS = 1.0

_runs = itertools.count(time.time_ns() // 1_000_000)


class Comparison:
    """Runs once. ``lowest``: how far every lane has committed; ``goes_on``: whether the subtask runs as it did."""

    def __init__(
        self,
        context: SubTaskContext,
        plans: Sequence[TablePlan],
        request: pb.CompareRequest,
        stop: StopSignal,
        lowest: Callable[[], RelayOffset | None],
        goes_on: Callable[[], bool],
    ) -> None:
        self._context, self._plans, self._request = context, tuple(plans), request
        self._stop, self._lowest, self._goes_on = stop, lowest, goes_on
        self.identity = f"{context.config.task}/compare"
        self.run_number = next(_runs)
        self._access = replace(context.access, secret=new_secret())
        self.tasks = request.threads or _DEFAULT_THREADS
        """Number of Spark tasks that work on the comparison; they are numbered from 0."""
        self.desk: Desk | None = None
        self._compared: tuple[ComparedTable, ...] = ()
        self._over = threading.Event()

    def frames(self) -> Iterator[pb.CompareFrame]:
        """Progress about once a second, rows as they are found, and the end. Raises no catalogue error: it is in the
        last frame."""
        passed: list[pb.ComparedTable] = []
        try:
            found = self._tables()
            passed = [passed_over(table) for table in found if isinstance(table, NotCompared)]
            self._compared = tuple(table for table in found if isinstance(table, ComparedTable))
            desk = self.desk = Desk(self._compared, self._request.most_rows or _DEFAULT_ROWS, self._stop)
            yield from self._run(desk)
            if desk.failure is not None:
                raise desk.failure
            end = pb.CompareEnd(tables=[*self._with_held(desk.tables()), *passed])
        except ShardmergeError as error:
            told = self.desk.tables() if self.desk is not None else []
            end = pb.CompareEnd(tables=[*told, *passed], error=rpc.error_to_proto(error))
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

    def _run(self, desk: Desk) -> Iterator[pb.CompareFrame]:
        context, registry = self._context, self._context.registry
        if not self._compared:
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
            threading.Thread(target=self._guarded(desk, work), name=name, daemon=True)
            for name, work in (("compare-plan", self._plan_all), ("compare-spark", self._run_tasks))
        ]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(_FRAME_SECONDS / len(threads))
                if not self._goes_on():
                    desk.fail(errors.compare.RELAY_CHANGED(task=context.config.task, source=context.source.source_id))
                yield from self._told(desk)
            yield from self._told(desk)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            registry.unregister_dispenser(self.identity, self.run_number)

    def _told(self, desk: Desk) -> Iterator[pb.CompareFrame]:
        for row in desk.rows():
            yield pb.CompareFrame(row=row)
        yield pb.CompareFrame(progress=desk.progress())

    def _guarded(self, desk: Desk, work: Callable[[Desk], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work(desk)
            except ShardmergeError as error:
                if not self._stop.is_set:
                    desk.fail(error)
            except Exception as error:
                log.exception("comparison", source=self._context.source.source_id)
                desk.fail(errors.worker.INTERNAL(kind=type(error).__name__, where="a comparison", reason=error))

        return run

    def _run_tasks(self, desk: Desk) -> None:
        context, config = self._context, self._context.config
        spec = CompareSpec(
            address=context.lane_address,
            secret=self._access.secret,
            identity=self.identity,
            run=self.run_number,
            who=Who(config.task, context.source.source_id, config.meta_schema),
            source=context.source_endpoint.without_secrets(),
            target=context.target_endpoint.without_secrets(),
            tables=self._compared,
            repair=self._request.repair,
            most_rows=self._request.most_rows or _DEFAULT_ROWS,
        )
        outcomes = context.spark.run(
            f"compare {config.task} {context.source.source_id}",
            self.tasks,
            CompareTask(spec),
            self._stop,
        )
        for outcome in outcomes:
            if isinstance(outcome, TaskFailed):
                raise outcome.error

    # --- what there is to compare

    def _tables(self) -> list[ComparedTable | NotCompared]:
        """Raises ``pymysql.MySQLError`` as coded errors."""
        wanted = [plan for plan in self._plans if _is_wanted(plan, self._request.tables)]
        with session_until(self._stop, self._context.target_endpoint, Side.TARGET, name="target") as session:
            everyone = self._everyone(session)
            first = min(self._request.task_sources, default="") == self._context.source.source_id
            found: list[ComparedTable | NotCompared] = []
            told: set[str] = set()
            for plan in wanted:
                target = read_table(session, plan.target_schema, plan.target_table, source="target")
                strays = first and plan.target_name not in told
                found.append(compared_table(plan, target, everyone, strays=strays))
                if isinstance(found[-1], ComparedTable):
                    told.add(plan.target_name)
            return found

    def _with_held(self, told: list[pb.ComparedTable]) -> list[pb.ComparedTable]:
        """With how many keys of each are held: they differ."""
        context = self._context

        def count(session: Session) -> None:
            for table, answer in zip(self._compared, told, strict=True):
                answer.held_keys = count_keys(session, context.who, (table.plan.shard,))

        # Not until ``stop``: that is set by now.
        context.at_target(count)
        return told

    def _everyone(self, session: Session) -> list[TablePlan] | str:
        """The plans of all shard tables, of all the task's sources and of other tasks, by their records at the target;
        or why they are not known."""
        config, mine = self._context.config, self._context.source.source_id
        away = rows(
            session,
            f"SELECT `source` FROM {quote_name(config.meta_schema)}.`parked_table` WHERE `task` = %s UNION "
            f"SELECT `source` FROM {quote_name(config.meta_schema)}.`subtask` WHERE `task` = %s AND `joining` <> ''",
            (config.task, config.task),
        )
        if away:
            return f"shard tables of source {away[0][0]} wait or join, so it is not known which rows are theirs"
        found = everyone(session, config.meta_schema, config.task, mine, self._request.task_sources)
        if found.silent:
            return (
                f"source {found.silent[0]} of the task does not replicate yet, so it is not known which rows are its "
                "own"
            )
        return [*self._plans, *found.others, *found.foreign]

    # --- the pieces of work

    def _plan_all(self, desk: Desk) -> None:
        context, stop = self._context, self._stop
        endpoint = context.target_endpoint
        with (
            until_stopped(open_source(context.source_endpoint, context.source.source_id), stop) as source,
            until_stopped(
                connect(endpoint, Side.TARGET, name="target", raw=True, read_timeout=ANSWER_SECONDS), stop
            ) as target,
        ):
            for number, table in enumerate(self._compared):
                self._plan(desk, number, table, source, target)
            desk.complete()

    def _plan(self, desk: Desk, number: int, table: ComparedTable, source: Session, target: Session) -> None:
        context = self._context
        # A further unique key is no reason to read a table in one piece here: nothing is loaded.
        plan = replace(table.plan, one_lane=False)
        kind = Works.KIND_RANGE if table.by_range else Works.KIND_KEYS
        with coding(context.source_endpoint, Side.SOURCE, context.source.source_id):
            self._offer(desk, number, kind, TablePlanner(source, plan, _CHUNK_ROWS).chunks())
        with coding(context.target_endpoint, Side.TARGET, "target"):
            if not table.by_range and not isinstance(table.owned, Unknown):
                back = replace(plan, table=table.target, source="target")
                self._offer(desk, number, Works.KIND_BACK, TablePlanner(target, back, _CHUNK_ROWS).chunks())
        if table.stray:
            desk.offer(pb.CompareWork(kind=Works.KIND_STRAY, table=number))

    def _offer(self, desk: Desk, number: int, kind: pb.CompareWork.Kind, chunks: Iterator[Chunk]) -> None:
        for chunk in chunks:
            work = pb.CompareWork(kind=kind, table=number, number=chunk.number, lower=chunk.lower, upper=chunk.upper)
            if not desk.offer(work):
                return


def _is_wanted(plan: TablePlan, names: Sequence[str]) -> bool:
    own = {f"{plan.table.schema}.{plan.table.name}", f"{plan.target_schema}.{plan.target_table}"}
    return not names or not own.isdisjoint(names)
