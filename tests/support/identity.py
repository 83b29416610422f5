"""The identity with which tests call daemons: the keys of the clusters that this process has started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import grpc

from shardmerge.proto import secret
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc import caller_proof
from shardmerge.proto.rpc.proving_channel import ProvingChannel

_paths: dict[Path, None] = {}


def know(path: Path) -> None:
    """Use the key in this file from now on, as soon as it exists; also by the channels of the product."""
    _paths[path] = None
    caller_proof.use(keys)


def keys() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in reversed(_paths):
        with suppress(ShardmergeError):
            found |= secret.load_key(str(path)).call_keys
    return found


def plain_channel(address: str) -> grpc.Channel:
    """Return a connection without an identity, which no other channel of this process shares."""
    return grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


def own_channel(address: str) -> ProvingChannel:
    """Return the same with an identity."""
    return ProvingChannel(plain_channel(address), keys, address)


def proof(address: str, method: str, request: bytes) -> tuple[tuple[str, bytes], ...]:
    """Return the metadata for one call with this request."""
    with own_channel(address) as channel:
        return ((caller_proof.METADATA, proved(channel, method, request)),)


def proved(channel: ProvingChannel, method: str, request: bytes) -> bytes:
    """Return the proof for one call of this channel."""
    found = channel.session.proof(method, request)
    assert found is not None, "there is no key"
    return found
