"""Whether programs without an identity reach etcd. Its records are the instructions for masters and workers."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

import grpc

from shardmerge.proto import errors
from shardmerge.proto.config.address import is_plain_etcd
from shardmerge.proto.etcd.api import rpc
from shardmerge.proto.files.local_socket import SCHEME
from shardmerge.proto.log import get_logger
from shardmerge.proto.tls.model import TlsFiles

_ANSWER_SECONDS = 2.0
_ROOT = b"/"


def check_access(endpoints: Iterable[str], tls: TlsFiles | None, *, insecure: bool) -> None:
    """Raise OPEN_ETCD if an endpoint answers a caller without an identity; ``insecure``: log it only.

    ``tls``: the files for etcd; None: plain text. An endpoint that does not answer is not judged.
    """
    for endpoint in endpoints:
        if not _is_open(endpoint, tls):
            continue
        error = errors.tls.OPEN_ETCD(endpoint=endpoint)
        if not insecure:
            raise error
        get_logger().warning("configuration", error=str(error), workaround=error.workaround)


def _is_open(endpoint: str, tls: TlsFiles | None) -> bool:
    if endpoint.startswith(SCHEME):
        return reached_by_others(Path(endpoint.removeprefix(SCHEME)))
    address = endpoint.rpartition("://")[2]
    options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
    if tls is None or is_plain_etcd(endpoint):
        channel = grpc.insecure_channel(address, options)
    else:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(Path(tls.ca).read_bytes()), options)
    with channel:
        try:
            rpc.KVStub(channel).Range(rpc.RangeRequest(key=_ROOT, keys_only=True, limit=1), timeout=_ANSWER_SECONDS)
        except grpc.RpcError:  # it refuses the caller, or does not answer
            return False
    return True


def reached_by_others(socket: Path) -> bool:
    """Whether other users of the machine may connect to a Unix socket; not if there is none. Connecting needs the right
    to write to it, and to pass through each folder above it (unix(7))."""
    try:
        modes = [socket.stat().st_mode & stat.S_IWOTH, *(one.stat().st_mode & stat.S_IXOTH for one in socket.parents)]
    except OSError:
        return False
    return all(modes)
