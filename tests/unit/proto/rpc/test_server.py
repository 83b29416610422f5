"""A server answers every kind of handler's failure with a coded error, and reports its health."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2

from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.relay_pb2 import RelayFrame, SubscribeRequest
from shardmerge.proto.relay_pb2_grpc import RelayServicer, RelayStub, add_RelayServicer_to_server
from shardmerge.proto.rpc.call_counts import CallCounts
from shardmerge.proto.rpc.client import channel, coded_from_rpc
from shardmerge.proto.rpc.server import Handler, Serving, add_service, listen, make_server

_MASTER = pb.DESCRIPTOR.services_by_name["Master"]


def _refuse(request: pb.ListMemberRequest, context: grpc.ServicerContext) -> pb.ListMemberResponse:
    raise errors.master.NOT_LEADER(master="m2", leader="m1", address="host:8261")


def _fail(request: pb.QueryStatusRequest, context: grpc.ServicerContext) -> pb.QueryStatusResponse:
    raise KeyError("secret detail")


def _fail_at_length(request: pb.CheckTaskRequest, context: grpc.ServicerContext) -> pb.CheckTaskResponse:
    raise errors.master.SOURCE_CHECK_FAILED(source="s", reason="ü{x} " * 20_000, instruction="y" * 50_000)


def _abort(request: pb.OperateSourceRequest, context: grpc.ServicerContext) -> pb.OperateSourceResponse:
    context.abort(grpc.StatusCode.PERMISSION_DENIED, "the handler's own word")


def _other(request: Any, context: grpc.ServicerContext) -> NoReturn:
    raise NotImplementedError


_HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_MASTER.methods_by_name, _other),
    "ListMember": _refuse,
    "QueryStatus": _fail,
    "CheckTask": _fail_at_length,
    "OperateSource": _abort,
    "StartTask": lambda request, context: pb.StartTaskResponse(result=True, msg="x" * (8 << 20)),
    "PurgeRelay": lambda request, context: pb.PurgeRelayResponse(),
}


class _Relay(RelayServicer):
    def Subscribe(self, request: SubscribeRequest, context: grpc.ServicerContext) -> Iterator[RelayFrame]:
        yield RelayFrame()
        raise errors.master.SOURCE_UNBOUND(source="s")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = make_server(("shardmerge.v1.Master",), "test")
    add_service(server, _MASTER, _HANDLERS)
    add_RelayServicer_to_server(_Relay(), server)  # type: ignore[abstract]
    port = listen(server, "127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


@pytest.fixture
def master(address: str) -> Iterator[MasterStub]:
    with channel(address) as opened:
        yield MasterStub(opened)


def _error(call: grpc.RpcError) -> ShardmergeError:
    return coded_from_rpc(call, "the peer")


def test_every_method_needs_a_handler() -> None:
    with pytest.raises(ValueError, match="PurgeRelay, purgeRelay"):
        server = make_server((), "test")
        handlers = {"purgeRelay" if name == "PurgeRelay" else name: each for name, each in _HANDLERS.items()}
        add_service(server, _MASTER, handlers)


def test_every_call_is_counted_with_its_status() -> None:
    counts = CallCounts()
    server = make_server(("shardmerge.v1.Master",), "test", counts=counts)
    add_service(server, _MASTER, _HANDLERS)
    add_RelayServicer_to_server(_Relay(), server)  # type: ignore[abstract]
    port = listen(server, "127.0.0.1:0")
    server.start()
    try:
        with channel(f"127.0.0.1:{port}") as opened:
            stub = MasterStub(opened)
            stub.PurgeRelay(pb.PurgeRelayRequest())
            stub.PurgeRelay(pb.PurgeRelayRequest())
            unknown = cast("Any", opened).unary_unary("/shardmerge.v1.Master/NoSuchMethod")
            calls: list[Callable[[], object]] = [
                lambda: stub.ListMember(pb.ListMemberRequest()),
                lambda: stub.QueryStatus(pb.QueryStatusRequest()),
                lambda: stub.OperateSource(pb.OperateSourceRequest()),
                lambda: stub.PurgeRelay(pb.PurgeRelayRequest(filename="a\nb")),
                lambda: list(RelayStub(opened).Subscribe(SubscribeRequest())),
                lambda: unknown(b""),
            ]
            for call in calls:
                with pytest.raises(grpc.RpcError):
                    call()
    finally:
        server.stop(0).wait()
    found = counts.figures()
    assert found.calls == {
        ("PurgeRelay", "OK"): 2,
        ("PurgeRelay", "INVALID_ARGUMENT"): 1,
        ("ListMember", "UNAVAILABLE"): 1,
        ("QueryStatus", "INTERNAL"): 1,
        ("OperateSource", "PERMISSION_DENIED"): 1,
        ("Subscribe", "UNAVAILABLE"): 1,
    }
    assert found.seconds.keys() == {method for method, _ in found.calls}
    assert all(seconds > 0 for seconds in found.seconds.values())


def test_coded_error_arrives_whole(master: MasterStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        master.ListMember(pb.ListMemberRequest())
    error = _error(caught.value)
    assert error.spec is errors.master.NOT_LEADER
    assert error.values["address"] == "host:8261"


def test_stream_ends_with_a_coded_error(address: str) -> None:
    with channel(address) as opened:
        frames = RelayStub(opened).Subscribe(SubscribeRequest())
        assert next(frames) == RelayFrame()
        with pytest.raises(grpc.RpcError) as caught:
            next(frames)
    assert _error(caught.value).spec is errors.master.SOURCE_UNBOUND


def test_unexpected_exception_is_coded_and_reveals_no_details(master: MasterStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        master.QueryStatus(pb.QueryStatusRequest())
    error = _error(caught.value)
    assert error.spec is errors.master.INTERNAL
    assert "KeyError" in error.message
    assert "secret" not in str(caught.value)


def test_huge_error_is_cut_and_still_coded(master: MasterStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        master.CheckTask(pb.CheckTaskRequest())
    error = _error(caught.value)
    assert error.code == errors.master.SOURCE_CHECK_FAILED.code
    assert "ü{x}" in error.message


def test_handlers_own_abort_passes(master: MasterStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        master.OperateSource(pb.OperateSourceRequest())
    assert "the handler's own word" in str(_error(caught.value))


def test_large_messages_pass(master: MasterStub) -> None:
    assert master.StartTask(pb.StartTaskRequest()).result


def test_health_and_second_listener(address: str) -> None:
    with channel(address) as opened:
        check = opened.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        answer = check(health_pb2.HealthCheckRequest(service="shardmerge.v1.Master"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(ShardmergeError) as caught:
        listen(make_server((), "second"), address)
    assert caught.value.spec is errors.master.CANNOT_LISTEN


def test_health_follows_the_readiness() -> None:
    serving = Serving()
    server = make_server(("shardmerge.v1.Master",), serving=serving)
    port = listen(server, "127.0.0.1:0")
    server.start()
    try:
        with channel(f"127.0.0.1:{port}") as opened:
            check = opened.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )

            def status(service: str) -> int:
                return check(health_pb2.HealthCheckRequest(service=service), timeout=20).status

            serves, serves_not = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
            assert status("") == status("shardmerge.v1.Master") == serves_not, "before the first update"
            for is_ready in (True, True, False, True):
                serving.update(is_ready=is_ready)
                assert status("") == status("shardmerge.v1.Master") == (serves if is_ready else serves_not)
    finally:
        server.stop(None)
