"""A small etcd v3 client: reads, transactions, leases and watches that outlive etcd's restarts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import grpc

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd.api import rpc
from shardmerge.proto.etcd.connection import Connection
from shardmerge.proto.etcd.lease import Lease, now
from shardmerge.proto.etcd.types import (
    Condition,
    Delete,
    DeletePrefix,
    KeyAbsent,
    KeyIs,
    KeyPresent,
    Operation,
    Put,
    Record,
    RecordSnapshot,
    TxnResult,
    range_end,
)
from shardmerge.proto.etcd.watch import watch
from shardmerge.proto.process.periodic import Stop
from shardmerge.proto.tls.model import TlsFiles
from shardmerge.proto.tls.process import store_for

T = TypeVar("T")

_RETRY_PAUSE_SECONDS = 0.1
_KEYS_AT_ONCE = 10_000
# The server's fault or the network's: the same request may succeed later.
_AWAY = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
    }
)


class Etcd:
    """Thread-safe. Every method raises ``errors.master.ETCD_UNAVAILABLE`` (retryable) when no endpoint answers within
    ``timeout`` seconds, ``ETCD_REFUSED`` when etcd refuses the request.

    Reads are tried again on every endpoint until the deadline. A write is sent once: when it fails with
    ETCD_UNAVAILABLE it may or may not have happened, so read before deciding again.
    """

    def __init__(self, endpoints: Sequence[str], timeout: float = 5.0, tls: TlsFiles | None = None) -> None:
        """``endpoints``: ``host:port``, with TLS if there is ``tls``; ``https://`` and ``http://`` before it override
        that for one endpoint. Raises what :func:`shardmerge.proto.tls.files.read_certificates` does."""
        if not endpoints:
            raise ValueError("etcd needs at least one endpoint")
        if tls is None and any(endpoint.startswith("https://") for endpoint in endpoints):
            raise ValueError("an https:// endpoint needs an authority to trust")
        self.endpoints = tuple(endpoints)
        self.timeout = timeout
        keeper = None if tls is None else store_for(tls)
        self._connections = [Connection(endpoint, keeper) for endpoint in self.endpoints]
        self._replaced: list[Connection] = []
        self._lock = threading.Lock()
        self._current = 0
        self._healthy = False
        self._closed = False

    # --- reads

    def get(self, key: str) -> Record | None:
        """The record now (linearizable), or None."""
        request = rpc.RangeRequest(key=key.encode())
        answer = self._read(lambda connection, seconds: connection.kv.Range(request, timeout=seconds))
        return _record(answer.kvs[0]) if answer.kvs else None

    def get_prefix(self, prefix: str) -> RecordSnapshot:
        """All records whose key begins with ``prefix``, of one revision."""
        request = rpc.RangeRequest(
            key=prefix.encode(),
            range_end=range_end(prefix),
            sort_order=rpc.RangeRequest.ASCEND,
            sort_target=rpc.RangeRequest.KEY,
        )
        answer = self._read(lambda connection, seconds: connection.kv.Range(request, timeout=seconds))
        return RecordSnapshot(tuple(_record(kv) for kv in answer.kvs), answer.header.revision)

    def ask(self, send: Callable[[Connection, float], T], seconds: float) -> T:
        """The answer to another question that may be repeated, within ``seconds``."""
        return self._read(send, seconds)

    def keys(self, prefix: str) -> tuple[str, ...]:
        """All keys that begin with ``prefix``, in order, without their values, of one moment: read in parts, because
        there may be many."""
        found: list[str] = []
        begin, revision = prefix.encode(), 0
        while True:
            answer = self._read(partial(_range_of_keys, begin, range_end(prefix), revision))
            found += [kv.key.decode() for kv in answer.kvs]
            if not answer.more:
                return tuple(found)
            begin, revision = answer.kvs[-1].key + b"\0", revision or answer.header.revision

    # --- writes

    def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> TxnResult:
        """Apply all ``operations`` if all ``conditions`` hold, else none.

        etcd allows 128 conditions and 128 operations by default (its flag --max-txn-ops), and no key twice.
        Raises ``errors.master.LEASE_LOST`` when a Put names a lease that has ended.
        """
        request = rpc.TxnRequest(
            compare=[_compare(condition) for condition in conditions],
            success=[_operation(operation) for operation in operations],
        )
        lease = next((op.lease for op in operations if isinstance(op, Put) and op.lease), 0)
        answer = self._write(
            lambda connection, seconds: connection.kv.Txn(request, timeout=seconds, wait_for_ready=True),
            lease,
        )
        return TxnResult(answer.succeeded, answer.header.revision)

    def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Write one record unconditionally; returns the new revision."""
        return self.txn([], [Put(key, value, lease)]).revision

    def delete(self, key: str) -> None:
        self.txn([], [Delete(key)])

    # --- leases

    def lease(self, ttl: float) -> Lease:
        """A new lease of ``ttl`` seconds (rounded up to whole ones) that is kept alive until revoked."""
        asked = max(1, int(ttl) + (int(ttl) != ttl))
        request = rpc.LeaseGrantRequest(TTL=asked)
        sent_at = now()
        answer = self._write(
            lambda connection, seconds: connection.lease.LeaseGrant(request, timeout=seconds, wait_for_ready=True)
        )
        return Lease(self, answer.ID, answer.TTL, sent_at)

    def keep_alive(self, lease: int, seconds: float) -> int:
        """Renew once, within ``seconds``: the new time to live in seconds, 0 when the lease has ended."""
        request = rpc.LeaseKeepAliveRequest(ID=lease)

        def renew(connection: Connection, left: float) -> int:
            call = connection.lease.LeaseKeepAlive(iter([request]), timeout=left)
            try:
                return next(iter(call)).TTL
            except StopIteration:
                return 0
            finally:
                call.cancel()

        return self._read(renew, seconds)

    def revoke(self, lease: int) -> None:
        """End a lease and delete its keys at once; no error if it has ended already."""
        request = rpc.LeaseRevokeRequest(ID=lease)
        try:
            self._write(
                lambda connection, seconds: connection.lease.LeaseRevoke(request, timeout=seconds, wait_for_ready=True),
                lease,
            )
        except ShardmergeError as error:
            if error.spec is not errors.master.LEASE_LOST:
                raise

    # --- watches

    def watch(self, prefix: str, start_revision: int, stop: Stop, resync_seconds: float = 5.0) -> Iterator[None]:
        """Yields whenever something under ``prefix`` may have changed; see
        :func:`shardmerge.proto.etcd.watch.watch`."""
        return watch(self, prefix, start_revision, stop, resync_seconds)

    # --- connections

    def connection(self) -> Connection:
        """The endpoint in use; for the watch."""
        return self._connections[self._current]

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those to all endpoints."""
        with self._lock:
            return tuple(self._connections)

    def failed(self, connection: Connection) -> None:
        """``connection`` did not answer: the next caller tries another endpoint first."""
        with self._lock:
            self._healthy = False
            if self._connections[self._current] is connection:
                if connection.is_outdated and not self._closed:
                    # Calls in progress on it may still be answered, so it is closed with the client.
                    self._replaced.append(connection)
                    self._connections[self._current] = connection.reopened()
                self._current = (self._current + 1) % len(self._connections)
        connection.log_tls_problem()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close the channels; calls in progress fail, watches end."""
        with self._lock:
            self._closed = True
            connections = [*self._connections, *self._replaced]
        for connection in connections:
            connection.channel.close()

    def __enter__(self) -> Etcd:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _read(self, send: Callable[[Connection, float], T], seconds: float | None = None) -> T:
        deadline = time.monotonic() + (self.timeout if seconds is None else seconds)
        # With several endpoints one that does not answer may only use its share of the time.
        share = (deadline - time.monotonic()) / len(self._connections)
        while True:
            connection = self.connection()
            left = min(share, max(0.05, deadline - time.monotonic()))
            try:
                answer = self._send(send, connection, left)
            except ShardmergeError as error:
                if error.spec is not errors.master.ETCD_UNAVAILABLE or time.monotonic() >= deadline:
                    raise
                if self._closed:
                    raise
            else:
                self._healthy = True
                return answer
            time.sleep(min(_RETRY_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))

    def _write(self, send: Callable[[Connection, float], T], lease: int = 0) -> T:
        if not self._healthy and len(self._connections) > 1:
            # Find an endpoint that answers by a read, which may be repeated; the write itself may not.
            probe = rpc.RangeRequest(key=b"\0", count_only=True)
            self._read(lambda connection, seconds: connection.kv.Range(probe, timeout=seconds))
        answer = self._send(send, self.connection(), self.timeout, lease)
        self._healthy = True
        return answer

    def _send(
        self, send: Callable[[Connection, float], T], connection: Connection, seconds: float, lease: int = 0
    ) -> T:
        try:
            return send(connection, seconds)
        except grpc.RpcError as error:
            code, details = _status(error)
            if code is grpc.StatusCode.NOT_FOUND and lease:
                raise errors.master.LEASE_LOST(lease=f"{lease:x}") from error
            if code not in _AWAY:
                raise errors.master.ETCD_REFUSED(
                    endpoints=connection.endpoint, reason=f"{details} ({code.name})"
                ) from error
            self.failed(connection)
            raise errors.master.ETCD_UNAVAILABLE(
                endpoints=",".join(self.endpoints), reason=f"{details} ({code.name})"
            ) from error
        except ValueError as error:  # gRPC's answer to a call on a closed channel
            raise errors.master.ETCD_UNAVAILABLE(
                endpoints=",".join(self.endpoints), reason="the client was closed"
            ) from error


def _range_of_keys(
    begin: bytes, end: bytes, revision: int, connection: Connection, seconds: float
) -> rpc.RangeResponse:
    request = rpc.RangeRequest(
        key=begin,
        range_end=end,
        limit=_KEYS_AT_ONCE,
        revision=revision,
        keys_only=True,  # in their order; with a requested order etcd would read all of them for each part
    )
    return connection.kv.Range(request, timeout=seconds)


def _status(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    if isinstance(error, grpc.Call):
        with contextlib.suppress(ValueError):
            return error.code(), error.details() or ""
    return grpc.StatusCode.UNKNOWN, str(error)


def _record(kv: rpc.KeyValue) -> Record:
    return Record(kv.key.decode(), kv.value, kv.mod_revision, kv.create_revision, kv.lease)


def _compare(condition: Condition) -> rpc.Compare:
    key = condition.key.encode()
    match condition:
        case KeyIs():
            return rpc.Compare(
                key=key,
                target=rpc.Compare.MOD,
                result=rpc.Compare.EQUAL,
                mod_revision=condition.mod_revision,
            )
        case KeyAbsent():
            return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=0)
        case KeyPresent():
            return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.GREATER, create_revision=0)


def _operation(operation: Operation) -> rpc.RequestOp:
    match operation:
        case Put():
            return rpc.RequestOp(
                request_put=rpc.PutRequest(key=operation.key.encode(), value=operation.value, lease=operation.lease)
            )
        case Delete():
            return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=operation.key.encode()))
        case DeletePrefix():
            return rpc.RequestOp(
                request_delete_range=rpc.DeleteRangeRequest(
                    key=operation.prefix.encode(), range_end=range_end(operation.prefix)
                )
            )
