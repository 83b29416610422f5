"""A client's coded error for a peer that does not answer."""

from __future__ import annotations

import grpc
import pytest

from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc.client import channel, coded_from_rpc
from tests.support.ports import free_port


def test_peer_that_is_not_there() -> None:
    with channel(f"127.0.0.1:{free_port()}") as opened, pytest.raises(grpc.RpcError) as caught:
        MasterStub(opened).ListMember(pb.ListMemberRequest(), timeout=300)
    error = coded_from_rpc(caught.value, "the peer")
    assert error.spec is errors.master.PEER_UNREACHABLE
    assert "the peer" in error.message
