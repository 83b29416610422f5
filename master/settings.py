"""The settings of one master."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto.config.secrets.key_file import KeyFile
from shardmerge.proto.tls.model import TlsFiles


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """``listen`` and ``advertise`` are "host:port"; times are seconds.

    ``member_ttl``: the lease of leadership and membership; another master replaces a dead leader after this time.
    ``rpc_timeout``: how long a command waits for workers. ``drain``: how long a stop may take to finish answers in
    progress. ``lock_alert``: age at which the lock of a sharding DDL is logged, and the time until it is logged again.
    ``shown``: the process's configuration, as YAML without secrets. ``etcd_tls``: the files for etcd, None for plain
    text. ``socket``: path of a Unix socket to listen at, too, "" for none; the master runs without a default one that
    it cannot create. ``key_file``: the key that encrypts passwords in etcd; None: they are stored in plain text, as in
    tests. ``reflection``: whether the gRPC services are described to callers. ``http``: where the HTTP endpoint
    listens, "": it is off; the master runs without a default one that is in use. ``insecure``: it gives the metrics to
    every caller. ``history_days``: how long the
    history of tasks is kept; ``history_sample_seconds``: between two samples of a task's lag and rate.
    """

    name: str
    listen: str
    advertise: str
    etcd: tuple[str, ...]
    member_ttl: float = 10.0
    rpc_timeout: float = 60.0
    drain: float = 10.0
    lock_alert: float = 300.0
    shown: str = ""
    etcd_tls: TlsFiles | None = None
    socket: str = ""
    socket_is_default: bool = False
    key_file: KeyFile | None = None
    reflection: bool = False
    http: str = ""
    http_is_default: bool = False
    insecure: bool = False
    history_days: int = 30
    history_sample_seconds: int = 600
