"""gRPC clients: channels to the other programs, and the coded error that explains a failed call."""

from __future__ import annotations

import grpc

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.files.local_socket import SCHEME
from shardmerge.proto.rpc import caller_proof
from shardmerge.proto.rpc.coded_errors import detail_of, error_from_proto
from shardmerge.proto.rpc.options import COMMON_OPTIONS, MAX_MESSAGE_BYTES
from shardmerge.proto.rpc.unregistered_channel import UnregisteredChannel
from shardmerge.proto.tls import process as tls

_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *COMMON_OPTIONS,
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


def channel(address: str) -> grpc.Channel:
    """A channel to ``host:port``, or to ``unix:PATH`` in plain text: large messages, keep-alive pings, quick
    reconnects, no proxy.

    It uses the current certificates of :func:`shardmerge.proto.tls.process.use`. Without them it is in plain text, and
    proves its calls with the current keys of :func:`shardmerge.proto.rpc.caller_proof.use`.
    """
    certificates = tls.certificate_store()
    if certificates is not None and not address.startswith(SCHEME):
        secure = grpc.secure_channel(address, certificates.channel_credentials(), options=_CHANNEL_OPTIONS)
        return UnregisteredChannel(secure)
    plain = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    if address.startswith(SCHEME) or not caller_proof.is_used():
        return UnregisteredChannel(plain)
    from shardmerge.proto.rpc.proving_channel import ProvingChannel  # dmctl with certificates does not need it

    return ProvingChannel(plain, caller_proof.keys_of_process, f"the program at {address}")


def coded_from_rpc(error: grpc.RpcError, peer: str, address: str = "") -> ShardmergeError:
    """The coded error of a failed call; ``peer`` names the other side, e.g. "worker w1 (host:8262)".

    ``address``: its ``host:port``; with it the reason of a failed connection is diagnosed (``errors.tls``).
    """
    if not isinstance(error, grpc.Call):
        return errors.master.PEER_FAILED(peer=peer, reason=error)
    detail = detail_of(error)
    if detail is not None:
        return error_from_proto(detail)
    reason = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            from shardmerge.proto.tls.diagnose import diagnosed  # dmctl starts faster without what it imports

            of_tls = diagnosed(address) if address else None
            if of_tls is not None:
                return of_tls
            return errors.master.PEER_UNREACHABLE(peer=peer, reason=reason)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.master.PEER_TIMEOUT(peer=peer)
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.master.PEER_UNIMPLEMENTED(peer=peer, reason=reason)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:  # by gRPC itself: the message is larger than any method allows
            return errors.master.PEER_REFUSED(peer=peer, reason=reason)
        case _:
            return errors.master.PEER_FAILED(peer=peer, reason=f"{reason} ({error.code().name})")
