"""compare: asks the workers of a task's sources, and passes on what they tell, as it comes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from master.store import Store
from proto import compare_pb2 as pb
from proto import compare_pb2_grpc, errors, rpc
from proto import state_pb2 as state
from proto.errors import ShardmergeError

SERVICE = "shardmerge.v1.Compare"

_LOOK_SECONDS = 1.0
_MOST_WAITING = 1000


class CompareService(compare_pb2_grpc.CompareServicer):
    """Answered by every master: nothing is decided and nothing stored. ``ending``: the master stops."""

    def __init__(self, store: Store, ending: threading.Event) -> None:
        self._store = store
        self._ending = ending

    def Compare(self, request: pb.CompareRequest, context: grpc.ServicerContext) -> Iterator[pb.CompareFrame]:
        """Raises TASK_UNKNOWN, SUBTASK_UNKNOWN; what goes wrong at one source is in its last frame."""
        known = self._store.read()
        everyone = known.sources_of(request.task)
        if not everyone:
            raise errors.master.TASK_UNKNOWN(task=request.task)
        wanted = tuple(dict.fromkeys(request.sources)) or tuple(everyone)
        for source in wanted:
            if source not in everyone:
                raise errors.master.SUBTASK_UNKNOWN(task=request.task, source=source)
        frames: queue.Queue[pb.CompareFrame] = queue.Queue(_MOST_WAITING)
        over = threading.Event()
        asked = pb.CompareRequest()
        asked.CopyFrom(request)
        asked.task_sources[:] = everyone
        parts = [_Part(source, known.worker_of(source), asked, frames, over) for source in wanted]
        if not context.add_callback(over.set):
            return
        try:
            for part in parts:
                part.start()
            left = len(parts)
            while left and not over.is_set() and not self._ending.is_set():
                try:
                    frame = frames.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    continue
                left -= frame.HasField("end")
                yield frame
        finally:
            over.set()
            for part in parts:
                part.cancel()


@dataclass(slots=True)
class _Call:
    cancel: Callable[[], object]


class _Part(threading.Thread):
    """One source's worker, asked in a thread of its own; its last frame always is an end."""

    def __init__(
        self,
        source: str,
        worker: state.WorkerRecord | None,
        request: pb.CompareRequest,
        frames: queue.Queue[pb.CompareFrame],
        over: threading.Event,
    ) -> None:
        super().__init__(name=f"compare-{source}", daemon=True)
        self._source, self._worker, self._frames, self._over = source, worker, frames, over
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
            for frame in self._asked():
                frame.source = self._source
                ended = ended or frame.HasField("end")
                if not self._put(frame):
                    return
            if not ended:
                raise errors.compare.STREAM_ENDED(task=self._request.task, source=self._source)
        except ShardmergeError as error:
            self._put(pb.CompareFrame(source=self._source, end=pb.CompareEnd(error=rpc.error_to_proto(error))))

    def _asked(self) -> Iterator[pb.CompareFrame]:
        if self._worker is None:
            raise errors.master.SOURCE_UNBOUND(source=self._source)
        with rpc.channel(self._worker.address) as channel:
            stream = compare_pb2_grpc.WorkerCompareStub(channel).CompareSubTask(self._request)
            self._call = _Call(stream.cancel)
            if self._over.is_set():
                stream.cancel()
            try:
                yield from stream
            except grpc.RpcError as error:
                peer = f"worker {self._worker.name} ({self._worker.address})"
                raise rpc.coded_from_rpc(error, peer, self._worker.address) from error

    def _put(self, frame: pb.CompareFrame) -> bool:
        while not self._over.is_set():
            try:
                self._frames.put(frame, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return True
        self.cancel()
        return False
