"""What one comparison's tasks take and report, and what its owner hears of it. Thread-safe."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from proto import compare_pb2 as pb
from proto import relay_pb2, rpc
from proto.errors import ShardmergeError
from worker.compare.owned import Unknown
from worker.compare.tables import ComparedTable, NotCompared
from worker.unit import StopSignal

_WAIT_SECONDS = 1.0
_MOST_WAITING = 1000

Works = pb.CompareWork


class Desk:
    """``most_rows``: so many rows are named per shard table. ``stop``: ends everybody's work."""

    def __init__(self, tables: Sequence[ComparedTable], most_rows: int, stop: StopSignal) -> None:
        self.stop = stop
        self._most_rows = most_rows
        self._tables = [_begun(table) for table in tables]
        self._changed = threading.Condition()
        self._waiting: deque[pb.CompareWork] = deque()
        self._taken: dict[int, pb.CompareWork] = {}
        self._planned = self._finished = 0
        self._complete = False
        self._failure: ShardmergeError | None = None
        self._named: dict[int, int] = {}
        self._rows: deque[pb.RowDifference] = deque()

    # --- the planner's side

    def offer(self, work: pb.CompareWork) -> bool:
        """Waits while much is waiting; False: nothing more is wanted."""
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
        """The first error stays."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    # --- the tasks' side

    def take(self, index: int) -> pb.CompareWork:
        """The next piece for task ``index``; the one it has if it has not reported it: Spark began the task again."""
        with self._changed:
            if self._is_over():
                return pb.CompareWork(kind=Works.KIND_STOP)
            mine = self._taken.get(index)
            if mine is None and not self._waiting and not self._complete:
                self._changed.wait(_WAIT_SECONDS)
            if mine is None and self._waiting:
                mine = self._taken[index] = self._waiting.popleft()
                self._changed.notify_all()
            if mine is not None:
                return mine
            return pb.CompareWork(kind=Works.KIND_FINISHED if self._complete else Works.KIND_WAIT)

    def report(self, report: pb.WorkReport) -> bool:
        """True: the task is to stop."""
        if report.HasField("failed"):
            self.fail(rpc.error_from_proto(report.failed))
            return True
        with self._changed:
            if not report.alive and self._taken.get(report.who.index) == report.work:
                del self._taken[report.who.index]
                self._count(report)
                self._changed.notify_all()
            return self._is_over()

    def _count(self, report: pb.WorkReport) -> None:
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
        room = max(0, self._most_rows - self._named.get(at, 0))
        named = list(report.differences[:room])
        self._named[at] = self._named.get(at, 0) + len(named)
        table.unnamed += report.missing + report.extra + report.different + report.unjudged - len(named)
        self._rows.extend(named)

    def _is_over(self) -> bool:
        return self.stop.is_set or self._failure is not None

    # --- the owner's side

    @property
    def failure(self) -> ShardmergeError | None:
        with self._changed:
            return self._failure

    def rows(self) -> list[pb.RowDifference]:
        """Those named since the last call."""
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
                differences=sum(table.missing + table.extra + table.different for table in self._tables),
            )

    def tables(self) -> list[pb.ComparedTable]:
        with self._changed:
            return list(self._tables)


def _begun(table: ComparedTable) -> pb.ComparedTable:
    plan = table.plan
    return pb.ComparedTable(
        source=plan.source,
        source_table=f"{plan.table.schema}.{plan.table.name}",
        target_table=f"{plan.target_schema}.{plan.target_table}",
        extra_unsought=table.owned.why if isinstance(table.owned, Unknown) else "",
    )


def passed_over(table: NotCompared) -> pb.ComparedTable:
    plan = table.plan
    return pb.ComparedTable(
        source=plan.source,
        source_table=f"{plan.table.schema}.{plan.table.name}",
        target_table=f"{plan.target_schema}.{plan.target_table}",
        not_compared=table.why,
    )


class NoChunks:
    """A comparison's readers take no chunks of a snapshot; see worker.context.ChunkDispenser."""

    def take(self, who: relay_pb2.TaskIdentity, os_pid: int) -> relay_pb2.TakeChunkResponse:
        return relay_pb2.TakeChunkResponse(stop=True)

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        return True
