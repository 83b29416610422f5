"""The channel to one endpoint of etcd, in plain text or with TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from shardmerge.proto.config.address import is_plain_etcd
from shardmerge.proto.etcd.api import rpc
from shardmerge.proto.files.local_socket import SCHEME

if TYPE_CHECKING:
    from shardmerge.proto.tls.store import CertificateStore

_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # etcd closes connections that ping more often than every 5 s, or without a call in flight
    # (its flag --grpc-keepalive-min-time and gRPC's enforcement policy).
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
)


class Connection:
    """One endpoint: its channel and the services on it."""

    def __init__(self, endpoint: str, keeper: CertificateStore | None) -> None:
        """``keeper``: the certificates; None: plain text."""
        self.endpoint = endpoint
        self._address = endpoint.rpartition("://")[2]
        self._keeper = None if is_plain_etcd(endpoint) else keeper
        self._made_with = None if self._keeper is None else self._keeper.current()
        if self._keeper is None:
            self.channel = grpc.insecure_channel(self._address, options=_CHANNEL_OPTIONS)
        else:
            credentials = self._keeper.channel_credentials()
            self.channel = grpc.secure_channel(self._address, credentials, options=_CHANNEL_OPTIONS)
        self.kv = rpc.KVStub(self.channel)
        self.lease = rpc.LeaseStub(self.channel)
        self.watch = rpc.WatchStub(self.channel)
        self.cluster = rpc.ClusterStub(self.channel)
        self.maintenance = rpc.MaintenanceStub(self.channel)

    @property
    def is_outdated(self) -> bool:
        """Whether the files hold other certificates now: a channel keeps those it was made with."""
        return self._keeper is not None and self._keeper.current() is not self._made_with

    def reopened(self) -> Connection:
        """A new connection to the same endpoint with the current certificates."""
        return Connection(self.endpoint, self._keeper)

    def log_tls_problem(self) -> None:
        """Log the reason if the endpoint does not answer because of TLS."""
        if self._address.startswith(SCHEME):
            return
        from shardmerge.proto.tls.diagnose import log_diagnosis

        log_diagnosis(self._address, None if self._keeper is None else self._keeper.files)
