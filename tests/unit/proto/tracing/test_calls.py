"""The operation of a client is that of the server's log lines; each other call gets one of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import structlog

from shardmerge.proto.log import configure, get_logger
from shardmerge.proto.relay_pb2 import RelayFrame, SubscribeRequest
from shardmerge.proto.relay_pb2_grpc import RelayServicer, RelayStub, add_RelayServicer_to_server
from shardmerge.proto.rpc.client import channel
from shardmerge.proto.rpc.server import listen, make_server
from shardmerge.proto.tracing.calls import OPERATION_HEADER, OperationOfCaller
from shardmerge.proto.tracing.operation import Operation, new_operation, present_operation, within


class _Relay(RelayServicer):
    def Subscribe(self, request: SubscribeRequest, context: grpc.ServicerContext) -> Iterator[RelayFrame]:
        get_logger().info("subscribed")
        yield RelayFrame()
        get_logger().info("continues")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "d.log"
    configure("dm-test", "info", "json", str(path))
    yield path
    structlog.reset_defaults()


@pytest.fixture
def stub(log: Path) -> Iterator[RelayStub]:
    server = make_server(("shardmerge.v1.Relay",), "test")
    add_RelayServicer_to_server(_Relay(), server)  # type: ignore[abstract]
    port = listen(server, "127.0.0.1:0")
    server.start()
    with grpc.intercept_channel(channel(f"127.0.0.1:{port}"), OperationOfCaller()) as opened:
        yield RelayStub(opened)
    server.stop(None)


def _operations(log: Path) -> list[str]:
    return [json.loads(line)["operation"] for line in log.read_text().splitlines()]


def test_the_callers_operation_goes_along(stub: RelayStub, log: Path) -> None:
    operation = Operation(new_operation().id, "fedcba9876543210")
    with within(operation):
        list(stub.Subscribe(SubscribeRequest(), timeout=30))
    assert _operations(log) == [operation.id] * 2


def test_other_calls_have_operations_of_their_own(stub: RelayStub, log: Path) -> None:
    list(stub.Subscribe(SubscribeRequest(), timeout=30))
    list(stub.Subscribe(SubscribeRequest(), timeout=30, metadata=((OPERATION_HEADER, "x" * 32),)))
    one, also_one, other, also_other = _operations(log)
    assert (one, other) == (also_one, also_other)
    assert one != other
    assert all(len(each) == 32 and int(each, 16) for each in (one, other))
    assert present_operation() is None
