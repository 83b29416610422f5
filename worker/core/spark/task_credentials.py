"""Each Spark task fetches the passwords of its run's servers from the worker that runs it."""

from __future__ import annotations

import grpc

from shardmerge.proto import relay_pb2, relay_pb2_grpc
from shardmerge.proto.rpc import client

_ANSWER_SECONDS = 60.0


def fetch_credentials(address: str, who: relay_pb2.TaskIdentity) -> relay_pb2.CredentialsResponse | None:
    """The secrets of the source and the target, from the worker at ``address``. None when the run has ended.

    Raises what ``client.coded_from_rpc`` makes of a call that failed.
    """
    with client.channel(address) as channel:
        try:
            answer = relay_pb2_grpc.RelayStub(channel).Credentials(
                relay_pb2.CredentialsRequest(who=who), timeout=_ANSWER_SECONDS
            )
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, f"worker at {address}", address) from error
    return None if answer.stop else answer
