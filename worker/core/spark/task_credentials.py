"""Each Spark task fetches the passwords of its run's servers from the worker that runs it."""

from __future__ import annotations

import grpc

from shardmerge.proto import relay_pb2, relay_pb2_grpc
from shardmerge.proto.rpc import client

_ANSWER_SECONDS = 60.0
_REACH_SECONDS = 8.0


def fetch_credentials(address: str, who: relay_pb2.TaskIdentity) -> relay_pb2.CredentialsResponse | None:
    """The secrets of the source and the target, from the worker at ``address``. None when the run has ended.

    Raises what ``client.coded_from_rpc`` makes of a call that failed.
    """
    answer = _ask(address, who, _ANSWER_SECONDS)
    return None if answer.stop else answer


def call(address: str) -> None:
    """Call the worker at ``address`` as a task of no run does: whether this process reaches it.

    Raises what ``client.coded_from_rpc`` makes of a call that failed.
    """
    _ask(address, relay_pb2.TaskIdentity(), _REACH_SECONDS)


def _ask(address: str, who: relay_pb2.TaskIdentity, seconds: float) -> relay_pb2.CredentialsResponse:
    with client.channel(address) as channel:
        try:
            return relay_pb2_grpc.RelayStub(channel).Credentials(relay_pb2.CredentialsRequest(who=who), timeout=seconds)
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, f"worker at {address}", address) from error
