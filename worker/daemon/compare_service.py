"""The worker's gRPC services for comparisons: the master starts one, its Spark tasks take their work."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import grpc

from shardmerge.proto import common_pb2, compare_pb2_grpc, errors, relay_pb2
from shardmerge.proto import compare_pb2 as pb
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.daemon.metrics.figures import Compared, CompareFigures
from shardmerge.worker.daemon.subtask.subtask import SubTask
from shardmerge.worker.verify.compare.comparison import Comparison


@dataclass(frozen=True, slots=True)
class _Result:
    """Of the complete comparisons of ``subtask``, while that exists."""

    subtask: weakref.ref[SubTask]
    source: str
    compared: Compared
    figures: CompareFigures


class WorkerCompareService(compare_pb2_grpc.WorkerCompareServicer, compare_pb2_grpc.CompareDeskServicer):
    """One per worker. ``find``: the subtask of a task at a source, None if the worker has none."""

    def __init__(self, find: Callable[[str, str], SubTask | None]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._running: dict[str, Comparison] = {}
        self._results: dict[str, _Result] = {}  # by task

    def CompareSubTask(self, request: pb.CompareRequest, context: grpc.ServicerContext) -> Iterator[pb.CompareFrame]:
        """Raises BAD_REQUEST, NOT_REPLICATING, ALREADY_RUNNING."""
        if len(request.sources) != 1:
            raise errors.master.BAD_REQUEST(reason="compare: a worker compares one source of a task at a time")
        if request.repair and request.references:
            raise errors.master.BAD_REQUEST(reason="compare: references are compared and not repaired")
        source = request.sources[0]
        subtask = self._find(request.task, source)
        if subtask is None:
            raise errors.compare.NOT_REPLICATING(task=request.task, source=source, state="not known to the worker yet")
        unit = subtask.replicating()
        plans = unit.plans if unit is not None else None
        if unit is None or plans is None:
            raise errors.compare.NOT_REPLICATING(task=request.task, source=source, state=_state(subtask))
        stop = StopSignal()
        running = Comparison(
            unit.context,
            plans,
            request,
            stop,
            unit.lowest,
            lambda: subtask.replicating() is unit and unit.plans is plans,
        )
        with self._lock:
            if running.identity in self._running:
                raise errors.compare.ALREADY_RUNNING(task=request.task, source=source)
            self._running[running.identity] = running
        try:
            if context.add_callback(stop.set):
                for frame in running.frames():
                    if frame.HasField("end"):
                        self._keep(subtask, request, frame.end)
                    yield frame
        finally:
            stop.set()
            with self._lock:
                del self._running[running.identity]

    def figures(self, task: str) -> CompareFigures:
        """The comparisons of a task's rows of the worker's source, for metrics."""
        with self._lock:
            is_running = any(each.task == task for each in self._running.values())
            result = self._results.get(task)
        # Another task of the name of one that was stopped has no result.
        if result is None or result.subtask() is not self._find(task, result.source):
            return CompareFigures(is_running)
        return replace(result.figures, is_running=is_running)

    def _keep(self, subtask: SubTask, request: pb.CompareRequest, end: pb.CompareEnd) -> None:
        """Keep the result of a comparison, if it is complete."""
        if end.HasField("error"):
            return
        with self._lock:
            self._results = {task: each for task, each in self._results.items() if each.subtask() is not None}
            known = self._results.get(request.task)
            before = known.compared if known is not None and known.subtask() is subtask else Compared()
            compared = before.after(request, end.tables, time.time())
            # The sums over all tables are made once, not at each scrape.
            result = _Result(weakref.ref(subtask), request.sources[0], compared, compared.figures())
            self._results[request.task] = result

    def TakeWork(self, request: pb.TakeWorkRequest, context: grpc.ServicerContext) -> pb.CompareWork:
        running = self._of(request.who)
        if running is None or running.queue is None:
            return pb.CompareWork(kind=pb.CompareWork.KIND_STOP)
        return running.queue.take(request.who.index)

    def ReportWork(self, request: pb.WorkReport, context: grpc.ServicerContext) -> relay_pb2.ReportAck:
        running = self._of(request.who)
        stop = running is None or running.queue is None or running.queue.report(request)
        return relay_pb2.ReportAck(stop=stop)

    def AskLanes(self, request: pb.TakeWorkRequest, context: grpc.ServicerContext) -> pb.LanesPlace:
        running = self._of(request.who)
        return pb.LanesPlace() if running is None else running.lanes()

    def _of(self, who: relay_pb2.TaskIdentity) -> Comparison | None:
        with self._lock:
            found = self._running.get(who.task)
        return found if found is not None and found.is_task(who) else None


def _state(subtask: SubTask) -> str:
    status = subtask.status()
    stage = common_pb2.Stage.Name(status.stage).removeprefix("STAGE_").capitalize()
    unit = {common_pb2.UNIT_SNAPSHOT: ", copying its snapshot", common_pb2.UNIT_REPLICATE: ", replicating"}
    return stage + unit.get(status.unit, "")
