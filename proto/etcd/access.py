"""Whether programs without an identity reach etcd. Its records are the instructions for masters and workers."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterable
from pathlib import Path

import grpc

from shardmerge.proto import errors
from shardmerge.proto.config.address import is_plain_etcd
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd.api import rpc
from shardmerge.proto.files.local_socket import SCHEME
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import LAST, repeat
from shardmerge.proto.tls.model import TlsFiles

_ANSWER_SECONDS = 2.0
_PAUSE_SECONDS = 1.0
_ROOT = b"/"


class AccessCheck:
    """Of one daemon. ``tls``: the files for etcd; None: plain text. ``insecure``: an open etcd is only logged."""

    def __init__(self, endpoints: Iterable[str], tls: TlsFiles | None, *, insecure: bool) -> None:
        self._unjudged = tuple(endpoints)
        self._tls = tls
        self._insecure = insecure
        self._error: ShardmergeError | None = None

    def judge(self) -> None:
        """Raise OPEN_ETCD if an endpoint answers a caller without an identity. One that does not answer is judged by
        the next call."""
        unjudged: list[str] = []
        for endpoint in self._unjudged:
            is_open = _is_open(endpoint, self._tls)
            if is_open is None:
                unjudged.append(endpoint)
            if not is_open:
                continue
            error = errors.tls.OPEN_ETCD(endpoint=endpoint)
            if not self._insecure:
                raise error
            get_logger().warning("configuration", error=str(error), workaround=error.workaround)
        self._unjudged = tuple(unjudged)

    def follow(self, ending: threading.Event) -> None:
        """Judge, in a thread, each endpoint as soon as it answers. ``ending`` is set when one is open: then
        :meth:`check` raises."""
        if self._unjudged:
            threading.Thread(target=self._follow, args=(ending,), name="etcd-access", daemon=True).start()

    def check(self) -> None:
        """Raise OPEN_ETCD if that is why the daemon ends."""
        if self._error is not None:
            raise self._error

    def _follow(self, ending: threading.Event) -> None:
        def step() -> float | None:
            self.judge()
            return None if self._unjudged else LAST

        try:
            repeat(step, _PAUSE_SECONDS, ending)
        except ShardmergeError as error:
            self._error = error
            ending.set()


def _is_open(endpoint: str, tls: TlsFiles | None) -> bool | None:
    """None: it does not answer."""
    if endpoint.startswith(SCHEME):
        path = Path(endpoint.removeprefix(SCHEME))
        return reached_by_others(path) if path.exists() else None
    address = endpoint.rpartition("://")[2]
    options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
    if tls is None or is_plain_etcd(endpoint):
        channel = grpc.insecure_channel(address, options)
    else:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(Path(tls.ca).read_bytes()), options)
    with channel:
        try:
            rpc.KVStub(channel).Range(rpc.RangeRequest(key=_ROOT, keys_only=True, limit=1), timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED or not _listens(address):
                return None
            return False  # it refuses the caller
    return True


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def reached_by_others(path: Path) -> bool:
    """Whether other users of the machine may connect to a Unix socket; not if there is none. Connecting needs the right
    to write to it, and to pass through each folder above it (unix(7))."""
    try:
        modes = [path.stat().st_mode & stat.S_IWOTH, *(one.stat().st_mode & stat.S_IXOTH for one in path.parents)]
    except OSError:
        return False
    return all(modes)
