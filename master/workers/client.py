"""Calls from the master to workers, each with a deadline and a coded error."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import diagnostics_pb2 as diagnostics
from shardmerge.proto import errors
from shardmerge.proto import state_pb2 as state
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.rpc.client import channel, coded_from_rpc
from shardmerge.proto.tls.process import current
from shardmerge.proto.tracing.calls import OperationOfCaller
from shardmerge.proto.worker_pb2_grpc import WorkerStub

if TYPE_CHECKING:
    from shardmerge.proto.tls.files import Certificates

T = TypeVar("T")
Request = TypeVar("Request")
Item = TypeVar("Item")

STATUS_SECONDS = 5.0
PURGE_SECONDS = 60.0  # removing hundreds of files on a slow disk takes long
FORGET_SECONDS = 510.0  # deferred indexes are added, and one transaction deletes the records of all chunks of a task
_FAN_OUT = 32
_LEFT = "it has left"


@dataclass(frozen=True, slots=True)
class _Connected:
    """A channel, its methods, and the certificates it was made with; None: plain text."""

    channel: grpc.Channel
    stub: WorkerStub
    certificates: Certificates | None


class Workers:
    """Thread-safe. Every method raises the worker's own coded error, or ``errors.master.PEER_*``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[str, _Connected] = {}

    def call(
        self,
        worker: state.WorkerRecord,
        method: Callable[[WorkerStub], grpc.UnaryUnaryMultiCallable[Request, T]],
        request: Request,
        seconds: float,
    ) -> T:
        """The worker's answer to ``request``. ``method``: the RPC."""
        return self._ask(worker, lambda stub: method(stub)(request, timeout=seconds))

    def status(
        self, worker: state.WorkerRecord, task: str = "", seconds: float = STATUS_SECONDS
    ) -> pb.WorkerStatusResponse:
        """The worker's source, relay and subtasks (of one ``task``; "" for all)."""
        request = pb.WorkerStatusRequest(task=task)
        return self._ask(worker, lambda stub: stub.QueryStatus(request, timeout=seconds))

    def check_source(self, worker: state.WorkerRecord, source: config.SourceConfig, seconds: float) -> pb.CheckResponse:
        request = pb.CheckSourceRequest(source=source)
        return self._ask(worker, lambda stub: stub.CheckSource(request, timeout=seconds))

    def check_subtask(
        self,
        worker: state.WorkerRecord,
        source: config.SourceConfig,
        subtask: config.SubTaskConfig,
        seconds: float,
        *,
        as_recorded: bool = False,
        family: Sequence[config.SubTaskConfig] = (),
        together: Sequence[str] = (),
    ) -> pb.CheckResponse:
        """``family``: the subtasks of all of the task's sources; ``together``: the sources that start with this
        command."""
        request = pb.CheckSubTaskRequest(
            source=source,
            subtask=subtask,
            as_recorded=as_recorded,
            family=family,
            together=together,
            master_clock=time.time(),
        )
        return self._ask(worker, lambda stub: stub.CheckSubTask(request, timeout=seconds))

    def read_keys(self, worker: state.WorkerRecord, request: pb.ReadKeysRequest) -> Iterator[pb.KeyBatch]:
        """This call has no deadline: a source may have to sort all of its keys first."""
        batches = self._ask(worker, lambda stub: stub.ReadKeys(request))
        try:
            yield from batches
        except grpc.RpcError as error:
            raise coded_from_rpc(error, _peer(worker), worker.address) from error
        finally:
            batches.cancel()

    def preview_update(
        self,
        worker: state.WorkerRecord,
        source: config.SourceConfig,
        subtask: config.SubTaskConfig,
        seconds: float,
    ) -> pb.PreviewUpdateResponse:
        request = pb.PreviewUpdateRequest(source=source, subtask=subtask)
        return self._ask(worker, lambda stub: stub.PreviewUpdate(request, timeout=seconds))

    def relay_needs(self, worker: state.WorkerRecord, source: str) -> pb.RelayNeedsResponse:
        request = pb.RelayNeedsRequest(source=source)
        return self._ask(worker, lambda stub: stub.RelayNeeds(request, timeout=STATUS_SECONDS))

    def diagnostics(self, worker: state.WorkerRecord, seconds: float) -> diagnostics.DaemonDiagnostics:
        """What the worker knows of itself."""
        return self._ask(worker, lambda stub: stub.Diagnostics(diagnostics.DiagnosticsRequest(), timeout=seconds))

    def overview(self, worker: state.WorkerRecord, seconds: float = STATUS_SECONDS) -> pb.WorkerOverviewResponse:
        return self._ask(worker, lambda stub: stub.Overview(pb.WorkerOverviewRequest(), timeout=seconds))

    def for_each(self, items: Sequence[Item], work: Callable[[Item], T]) -> list[T]:
        """``work`` on the items at the same time, results in their order; ``work`` must end by itself.

        Each call has threads of its own: a command that waits must not delay a status query.
        """
        if not items:
            return []
        with ThreadPoolExecutor(min(len(items), _FAN_OUT), thread_name_prefix="ask-worker") as pool:
            # Each thread has the caller's context, with its operation.
            calls = [pool.submit(contextvars.copy_context().run, work, item) for item in items]
            return [call.result() for call in calls]

    def keep_only(self, addresses: Set[str]) -> None:
        """Close connections to workers that are gone."""
        with self._lock:
            gone = [self._channels.pop(address) for address in self._channels.keys() - addresses]
        for one in gone:
            one.channel.close()

    def close(self) -> None:
        self.keep_only(frozenset())

    def _ask(self, worker: state.WorkerRecord, send: Callable[[WorkerStub], T]) -> T:
        certificates = current()
        with self._lock:
            connected = self._channels.get(worker.address)
            if connected is None or connected.certificates is not certificates:
                # A channel with older certificates is not closed: it ends with the last answer in progress on it.
                traced = grpc.intercept_channel(channel(worker.address), OperationOfCaller())
                connected = self._channels[worker.address] = _Connected(traced, WorkerStub(traced), certificates)
        peer = _peer(worker)
        try:
            return send(connected.stub)
        except grpc.RpcError as error:
            is_cancelled = isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.CANCELLED
            if is_cancelled and self._is_closed(connected):
                raise errors.master.PEER_UNREACHABLE(peer=peer, reason=_LEFT) from error
            raise coded_from_rpc(error, peer, worker.address) from error
        except ValueError as error:  # the channel was closed meanwhile: the worker is gone
            raise errors.master.PEER_UNREACHABLE(peer=peer, reason=_LEFT) from error

    def _is_closed(self, connected: _Connected) -> bool:
        """Whether :meth:`keep_only` has closed the connection: the worker has lost its lease."""
        with self._lock:
            return all(each is not connected for each in self._channels.values())


def _peer(worker: state.WorkerRecord) -> str:
    return f"worker {worker.name} ({worker.address})"
