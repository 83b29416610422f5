"""The worker's gRPC services for comparisons: the master starts one, its Spark tasks take their work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import grpc

from shardmerge.proto import common_pb2, compare_pb2_grpc, errors, relay_pb2
from shardmerge.proto import compare_pb2 as pb
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.daemon.subtask.subtask import SubTask
from shardmerge.worker.verify.compare.comparison import Comparison


class CompareService(compare_pb2_grpc.WorkerCompareServicer, compare_pb2_grpc.CompareDeskServicer):
    """One per worker. ``find``: the subtask of a task at a source, None if the worker has none."""

    def __init__(self, find: Callable[[str, str], SubTask | None]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._running: dict[str, Comparison] = {}

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
                yield from running.frames()
        finally:
            stop.set()
            with self._lock:
                del self._running[running.identity]

    def compares(self, task: str) -> bool:
        """Whether the task's rows of the worker's source are being compared now."""
        with self._lock:
            return any(each.task == task for each in self._running.values())

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
