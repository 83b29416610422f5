"""The work of one comparison: its tasks take pieces and report, the comparison reads the results. Thread-safe."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto import relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto
from shardmerge.worker.core.position import Located, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.tables.row_ownership import NotSeparable
from shardmerge.worker.verify.compare.compared_relations import RelationNotCompared, RelationShard
from shardmerge.worker.verify.compare.compared_tables import ComparedTable, NotCompared, UnkeyedTables

_WAIT_SECONDS = 1.0
_MOST_WAITING = 1000

Work = pb.CompareWork

NO_KEY = "it has no key: only the sums of its rows were read"
CHANGING = "it has no key, and its rows changed each time that both sides were read; compare it without writers"


class WorkQueue:
    """``most_rows``: how many rows are named per shard table. ``stop``: ends the planner and all tasks."""

    def __init__(
        self, tables: Sequence[ComparedTable | UnkeyedTables | RelationShard], most_rows: int, stop: StopSignal
    ) -> None:
        self.stop = stop
        self._most_rows = most_rows
        self._tables = [empty_report(table) for table in tables]
        self._changed = threading.Condition()
        self._waiting: deque[pb.CompareWork] = deque()
        self._taken: dict[int, pb.CompareWork] = {}
        self._planned = self._finished = 0
        self._complete = False
        self._failure: ShardmergeError | None = None
        self._named: dict[int, int] = {}
        self._rows: deque[pb.RowDifference] = deque()

    # --- calls of the planner

    def put(self, work: pb.CompareWork) -> bool:
        """Add a piece of work; waits while the queue is full. False: the comparison ends."""
        with self._changed:
            while len(self._waiting) >= _MOST_WAITING and not self._is_over():
                self._changed.wait(_WAIT_SECONDS)
            if self._is_over():
                return False
            self._waiting.append(work)
            self._planned += 1
            self._changed.notify_all()
            return True

    def complete(self) -> None:
        with self._changed:
            self._complete = True
            self._changed.notify_all()

    def fail(self, error: ShardmergeError) -> None:
        """Fail the comparison. The first error is kept."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    # --- calls of the tasks

    def take(self, index: int) -> pb.CompareWork:
        """The next piece for task ``index``; its current one if it has not reported it: Spark restarted the task."""
        with self._changed:
            if self._is_over():
                return pb.CompareWork(kind=Work.KIND_STOP)
            mine = self._taken.get(index)
            if mine is None and not self._waiting and not self._complete:
                self._changed.wait(_WAIT_SECONDS)
            if mine is None and self._waiting:
                mine = self._taken[index] = self._waiting.popleft()
                self._changed.notify_all()
            if mine is not None:
                return mine
            return pb.CompareWork(kind=Work.KIND_FINISHED if self._complete else Work.KIND_WAIT)

    def report(self, report: pb.WorkReport) -> bool:
        """Count a report; True: the task has to stop."""
        if report.HasField("failed"):
            self.fail(error_from_proto(report.failed))
            return True
        with self._changed:
            if not report.alive and self._taken.get(report.who.index) == report.work:
                del self._taken[report.who.index]
                self._count(report)
                self._changed.notify_all()
            return self._is_over()

    def _count(self, report: pb.WorkReport) -> None:
        if report.work.kind == Work.KIND_REFERENCE:
            self._count_orphans(report)
            return
        at = report.work.table
        table = self._tables[at]
        self._finished += 1
        table.chunks += 1
        table.rows += report.rows
        table.missing += report.missing
        table.extra += report.extra
        table.different += report.different
        table.unjudged += report.unjudged
        table.repaired += report.repaired
        if report.HasField("multiset"):
            table.multiset.CopyFrom(report.multiset)
        elif table.not_compared:
            table.not_compared = CHANGING
        room = max(0, self._most_rows - self._named.get(at, 0))
        named = list(report.differences[:room])
        self._named[at] = self._named.get(at, 0) + len(named)
        table.unnamed += report.missing + report.extra + report.different + report.unjudged - len(named)
        self._rows.extend(named)

    def _count_orphans(self, report: pb.WorkReport) -> None:
        self._finished += 1
        for count in report.orphans:
            table = self._tables[count.table]
            table.orphans += count.orphans
            table.unjudged += count.unjudged
            room = max(0, self._most_rows - self._named.get(count.table, 0))
            mine = [row for row in report.differences if _is_of(row, table)]
            self._named[count.table] = self._named.get(count.table, 0) + len(mine[:room])
            table.unnamed += count.orphans + count.unjudged - len(mine[:room])
            self._rows.extend(mine[:room])

    def _is_over(self) -> bool:
        return self.stop.is_set or self._failure is not None

    # --- calls of the comparison

    @property
    def failure(self) -> ShardmergeError | None:
        with self._changed:
            return self._failure

    def rows(self) -> list[pb.RowDifference]:
        """The rows that were named since the last call."""
        with self._changed:
            found = list(self._rows)
            self._rows.clear()
            return found

    def progress(self) -> pb.CompareProgress:
        with self._changed:
            return pb.CompareProgress(
                finished_chunks=self._finished,
                total_chunks=self._planned,
                plan_complete=self._complete,
                rows=sum(table.rows for table in self._tables),
                differences=sum(
                    table.missing + table.extra + table.different + table.orphans for table in self._tables
                ),
            )

    def tables(self) -> list[pb.ComparedTable]:
        with self._changed:
            return list(self._tables)


def _is_of(row: pb.RowDifference, table: pb.ComparedTable) -> bool:
    return (row.source_table, row.reference) == (table.source_table, table.reference)


def empty_report(table: ComparedTable | UnkeyedTables | RelationShard) -> pb.ComparedTable:
    if isinstance(table, RelationShard):
        report = empty_report(table.child)
        report.reference, report.extra_unsought = table.relation, ""
        return report
    if isinstance(table, UnkeyedTables):
        report = _report_of(table.plans[0])
        report.source_table = ", ".join(plan.table.dotted for plan in table.plans)
        report.not_compared = NO_KEY
        return report
    report = _report_of(table.plan)
    report.extra_unsought = table.owned.why if isinstance(table.owned, NotSeparable) else ""
    return report


def skipped_relation(relation: RelationNotCompared) -> pb.ComparedTable:
    report = skipped_table(relation.table)
    report.reference = relation.relation
    return report


def left_out_table(plan: TablePlan) -> pb.ComparedTable:
    report = _report_of(plan)
    report.left_out = True
    return report


def skipped_table(table: NotCompared) -> pb.ComparedTable:
    report = _report_of(table.plan)
    report.not_compared = table.why
    return report


def _report_of(plan: TablePlan) -> pb.ComparedTable:
    return pb.ComparedTable(source=plan.source, source_table=plan.table.dotted, target_table=plan.target.dotted)


class NoChunks:
    """A dispenser without chunks, for a comparison's tasks; see shardmerge.worker.unit.run_context.ChunkDispenser."""

    def take(self, who: relay_pb2.TaskIdentity, os_pid: int) -> relay_pb2.TakeChunkResponse:
        return relay_pb2.TakeChunkResponse(stop=True)

    def admit(
        self, who: relay_pb2.TaskIdentity, chunk: relay_pb2.ChunkSpec, position: SourcePosition
    ) -> Located | None:
        return None

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        return True
