"""compare: calls the workers of a task's sources, and forwards their frames as they arrive."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from shardmerge.master.store import Store
from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto import compare_pb2_grpc, errors
from shardmerge.proto import state_pb2 as state
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc import client
from shardmerge.proto.rpc.coded_errors import error_to_proto

SERVICE = "shardmerge.v1.Compare"

_POLL_SECONDS = 1.0
_MAX_QUEUED = 1000


class CompareService(compare_pb2_grpc.CompareServicer):
    """Every master answers it: nothing is decided and nothing stored. ``ending``: the master stops."""

    def __init__(self, store: Store, ending: threading.Event) -> None:
        self._store = store
        self._ending = ending

    def Compare(self, request: pb.CompareRequest, context: grpc.ServicerContext) -> Iterator[pb.CompareFrame]:
        """Raises TASK_UNKNOWN, SUBTASK_UNKNOWN, INTERRUPTED; the last frame of a source holds its error."""
        known = self._store.read()
        wanted = known.selected_sources(request.task, request.sources)
        frames: queue.Queue[pb.CompareFrame] = queue.Queue(_MAX_QUEUED)
        over = threading.Event()
        part_request = pb.CompareRequest()
        part_request.CopyFrom(request)
        part_request.task_sources[:] = known.sources_of(request.task)
        parts = [_Part(source, known.worker_of(source), part_request, frames, over) for source in wanted]
        if not context.add_callback(over.set):
            return
        try:
            for part in parts:
                part.start()
            left = {part.source for part in parts}
            while left and not over.is_set():
                if self._ending.is_set():
                    raise errors.compare.INTERRUPTED(task=request.task, sources=", ".join(sorted(left)))
                try:
                    frame = frames.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    continue
                if frame.HasField("end"):
                    left.discard(frame.source)
                yield frame
        finally:
            over.set()
            for part in parts:
                part.cancel()


@dataclass(slots=True)
class _Call:
    cancel: Callable[[], object]


class _Part(threading.Thread):
    """A thread that calls one source's worker; its last frame is always an end."""

    def __init__(
        self,
        source: str,
        worker: state.WorkerRecord | None,
        request: pb.CompareRequest,
        frames: queue.Queue[pb.CompareFrame],
        over: threading.Event,
    ) -> None:
        super().__init__(name=f"compare-{source}", daemon=True)
        self.source = source
        self._worker, self._frames, self._over = worker, frames, over
        self._request = pb.CompareRequest()
        self._request.CopyFrom(request)
        self._request.sources[:] = [source]
        self._call: _Call | None = None

    def cancel(self) -> None:
        call = self._call
        if call is not None:
            call.cancel()

    def run(self) -> None:
        ended = False
        try:
            for frame in self._call_worker():
                frame.source = self.source
                ended = ended or frame.HasField("end")
                if not self._put(frame):
                    return
            if not ended:
                raise errors.compare.STREAM_ENDED(task=self._request.task, source=self.source)
        except ShardmergeError as error:
            self._put(pb.CompareFrame(source=self.source, end=pb.CompareEnd(error=error_to_proto(error))))

    def _call_worker(self) -> Iterator[pb.CompareFrame]:
        if self._worker is None:
            raise errors.master.SOURCE_UNBOUND(source=self.source)
        with client.channel(self._worker.address) as channel:
            try:
                stream = compare_pb2_grpc.WorkerCompareStub(channel).CompareSubTask(self._request)
                self._call = _Call(stream.cancel)
                if self._over.is_set():
                    stream.cancel()
                yield from stream
            except grpc.RpcError as error:
                peer = f"worker {self._worker.name} ({self._worker.address})"
                raise client.coded_from_rpc(error, peer, self._worker.address) from error

    def _put(self, frame: pb.CompareFrame) -> bool:
        while not self._over.is_set():
            try:
                self._frames.put(frame, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        self.cancel()
        return False
