"""A client's coded error for a peer that does not answer."""

from __future__ import annotations

import os

import grpc
import pytest

from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc.client import channel, coded_from_rpc
from shardmerge.proto.rpc.proving_channel import ProvingChannel
from shardmerge.proto.tracing.calls import OperationOfCaller
from tests.support.ports import free_port


def test_peer_that_is_not_there() -> None:
    with channel(f"127.0.0.1:{free_port()}") as opened, pytest.raises(grpc.RpcError) as caught:
        MasterStub(opened).ListMember(pb.ListMemberRequest(), timeout=300)
    error = coded_from_rpc(caught.value, "the peer")
    assert error.spec is errors.master.PEER_UNREACHABLE
    assert "the peer" in error.message


def test_a_channel_that_another_thread_closes_before_its_first_call() -> None:
    """gRPC would end the process if a method were registered at the closed channel."""
    opened: ProvingChannel

    def keys() -> dict[str, bytes]:
        opened.close()
        return {"k": os.urandom(32)}

    opened = ProvingChannel(grpc.insecure_channel(f"127.0.0.1:{free_port()}"), keys, "the peer")
    ask = MasterStub(opened).ListMember
    with pytest.raises(ValueError, match="closed"):
        ask(pb.ListMemberRequest(), timeout=300)


def test_a_call_of_a_channel_that_another_thread_has_closed() -> None:
    """An intercepted channel makes the method anew at each call."""
    opened = channel(f"127.0.0.1:{free_port()}")
    ask = MasterStub(grpc.intercept_channel(opened, OperationOfCaller())).ListMember
    opened.close()
    with pytest.raises(ValueError, match="closed"):
        ask(pb.ListMemberRequest(), timeout=300)
