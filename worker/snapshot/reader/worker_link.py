"""The calls that a chunk reader makes to its worker, as a protocol and over gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import grpc

from shardmerge.proto import relay_pb2, relay_pb2_grpc
from shardmerge.proto.rpc import client
from shardmerge.worker.core.position import Located, RelayOffset, SourcePosition
from shardmerge.worker.rules.transform.client import TransformClient

_ANSWER_SECONDS = 60.0
_LOCATE_SECONDS = 660.0


class WorkerClient(Protocol):
    """A reader's calls to its worker. Methods raise catalogue errors."""

    def take(self) -> relay_pb2.TakeChunkResponse:
        """The next chunk, or what to do instead."""
        ...

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        """Report a chunk's progress or end (``who`` is filled in); True: stop."""
        ...

    def locate(self, position: SourcePosition) -> Located:
        """Wait until the relay log contains ``position``; returns its offset."""
        ...

    def admit(self, chunk: relay_pb2.ChunkSpec, position: SourcePosition) -> Located | None:
        """Wait until the relay log contains ``position``; None: a statement before it has interrupted the copy of the
        chunk's table."""
        ...

    def subscribe(self, start: RelayOffset, until: RelayOffset) -> Iterator[relay_pb2.RelayFrame]:
        """The raw events from ``start`` up to ``until``."""
        ...

    def evaluate(self, request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
        """Apply a transform to rows (``who`` is filled in)."""
        ...

    def close(self) -> None: ...


class GrpcWorkerClient:
    """A reader's calls over gRPC: service Relay of the worker at ``address`` (host:port)."""

    def __init__(self, address: str, who: relay_pb2.TaskIdentity, os_pid: int) -> None:
        self._who = who
        self._os_pid = os_pid
        self._peer, self._address = f"worker at {address}", address
        self._channel = client.channel(address)
        self._stub = relay_pb2_grpc.RelayStub(self._channel)
        self._asker = TransformClient(address, who)

    def take(self) -> relay_pb2.TakeChunkResponse:
        try:
            return self._stub.TakeChunk(
                relay_pb2.TakeChunkRequest(who=self._who, os_pid=self._os_pid), timeout=_ANSWER_SECONDS
            )
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, self._peer, self._address) from error

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        report.who.CopyFrom(self._who)
        try:
            return self._stub.ReportChunk(report, timeout=_ANSWER_SECONDS).stop
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, self._peer, self._address) from error

    def locate(self, position: SourcePosition) -> Located:
        request = relay_pb2.LocateRequest(who=self._who, position=position.to_proto())
        try:
            answer = self._stub.Locate(request, timeout=_LOCATE_SECONDS)
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, self._peer, self._address) from error
        return Located(answer.relay_id, RelayOffset.from_proto(answer.offset))

    def admit(self, chunk: relay_pb2.ChunkSpec, position: SourcePosition) -> Located | None:
        request = relay_pb2.AdmitChunkRequest(who=self._who, chunk=chunk, position=position.to_proto())
        try:
            answer = self._stub.AdmitChunk(request, timeout=_LOCATE_SECONDS)
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, self._peer, self._address) from error
        return None if answer.interrupted else Located(answer.relay_id, RelayOffset.from_proto(answer.offset))

    def subscribe(self, start: RelayOffset, until: RelayOffset) -> Iterator[relay_pb2.RelayFrame]:
        request = relay_pb2.SubscribeRequest(
            who=self._who, until=until.to_proto(), barriers=False, by_reference=False, **{"from": start.to_proto()}
        )
        try:
            yield from self._stub.Subscribe(request)
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, self._peer, self._address) from error

    def evaluate(self, request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
        return self._asker(request)

    def close(self) -> None:
        self._asker.close()
        self._channel.close()
