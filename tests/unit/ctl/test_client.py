"""The connection to a master that fails, or does not answer."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence

import grpc
import pytest

from shardmerge.ctl.client import MasterClient
from shardmerge.ctl.settings import ClientSettings, OutputFormat
from shardmerge.proto import errors, identity_pb2, identity_pb2_grpc
from shardmerge.proto.compare_pb2 import CompareRequest
from shardmerge.proto.diagnostics_pb2 import DiagnosticsRequest
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.master_pb2 import QueryStatusRequest
from shardmerge.proto.rpc import caller_proof
from shardmerge.proto.rpc.server import listen, make_server
from tests.support.ports import free_port


def _keep(_path: str, _environment: Mapping[str, str]) -> None:
    """In the place of what reads the user's key file."""


@pytest.fixture
def make_client(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], MasterClient]:
    """Return a function that makes a client of a master; its calls are proved."""
    monkeypatch.setattr(caller_proof, "use_file", _keep)
    monkeypatch.setattr(caller_proof, "is_used", lambda: True)
    monkeypatch.setattr(caller_proof, "keys_of_process", lambda: {"one": b"k" * 32})
    return lambda address: MasterClient(ClientSettings((address,), 60.0, OutputFormat("auto"), debug=False, sources=()))


class _Ending(identity_pb2_grpc.IdentityServicer):
    """A master that ends while it is asked for its proof."""

    def Prove(self, request: identity_pb2.ProveRequest, context: grpc.ServicerContext) -> identity_pb2.ProveResponse:
        context.abort(grpc.StatusCode.UNAVAILABLE, "it ends")


@pytest.fixture
def ending_master() -> Iterator[str]:
    """The address of a master that ends while it is asked for its proof."""
    server = make_server((), "dm-master m")
    identity_pb2_grpc.add_IdentityServicer_to_server(_Ending(), server)
    address = f"127.0.0.1:{free_port()}"
    listen(server, address)
    server.start()
    yield address
    server.stop(0).wait()


def _compare(client: MasterClient) -> Sequence[object]:
    return list(client.compare(CompareRequest(task="merge")))


def _diagnostics(client: MasterClient) -> Sequence[object]:
    return list(client.diagnostics("collect-diagnostics", DiagnosticsRequest(), timeout=30))


@pytest.mark.parametrize("ask", [_compare, _diagnostics])
def test_a_stream_whose_master_ends_while_it_begins(
    ask: Callable[[MasterClient], Sequence[object]], make_client: Callable[[str], MasterClient], ending_master: str
) -> None:
    with make_client(ending_master) as client, pytest.raises(ShardmergeError) as caught:
        ask(client)
    assert caught.value.spec is errors.ctl.CONNECTION_LOST


def test_a_master_that_takes_connections_and_does_not_answer(make_client: Callable[[str], MasterClient]) -> None:
    """The process may be held, or the machine be busy: dmctl does not know that it is another program."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with make_client(address) as client, pytest.raises(ShardmergeError) as caught:
            client.call("query-status", lambda stub: stub.QueryStatus, QueryStatusRequest(), timeout=10)
    assert caught.value.spec is errors.ctl.MASTER_UNREACHABLE
    assert f"{address}: it accepts connections, but no dm-master has answered within 3 s" in caught.value.message
