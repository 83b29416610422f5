"""Chooses the server id of a relay at its source. Pure; worker/daemon/source/server_id_lease.py holds it in etcd.

A server ends an older dump when a new one with the same id begins: MariaDB identifies it by the server id, MySQL by the
replica's UUID, which is made of the server id here (worker/relay/fetch/fetcher.py). Two replicas with one id end each
other's dumps for ever. MySQL 8.4 Reference Manual, "Replication and Binary Logging Options and Variables" (server_id,
server_uuid); MariaDB Knowledge Base, "Replication and Binary Log System Variables" (server_id).
"""

from __future__ import annotations

import math
import secrets
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shardmerge.worker.core.mysql.connection import ServerInfo

ServerIdOf = Callable[[ServerInfo], int]
"""Called before each dump with the server: returns the server id to use. May raise a catalogue error."""

_LOWEST = 0x8000_0000
"""Derived ids are above those that administrators usually configure. A server id has 32 bits."""


def random_server_id() -> int:
    """An id for a dump that is not a relay's. Any other replica with the same id would end the dump: a random one
    has no other user."""
    return _LOWEST | secrets.randbits(31)


@dataclass(frozen=True, slots=True)
class ServerIdHolder:
    """The holder of a server id; ``lease_seconds``: how long it holds the id after its last keep-alive."""

    worker: str
    source: str
    lease_seconds: int

    def __str__(self) -> str:
        return f"worker {self.worker} for source {self.source}"


@dataclass(frozen=True, slots=True)
class Taken:
    """The requested server id, and its holder."""

    server_id: int
    holder: ServerIdHolder


def derived(directory: Path) -> int:
    """An id that stays the same as long as this machine keeps its relay log there."""
    return _LOWEST | zlib.crc32(f"{socket.gethostname()}:{directory.resolve()}".encode())


def candidates(first: int, own: int) -> Iterator[int]:
    """Every possible derived id, each once, from ``first`` (of :func:`derived`) on; without the source's ``own``."""
    for number in range(_LOWEST):
        candidate = _LOWEST + (first + number) % _LOWEST
        if candidate != own:
            yield candidate


def choose(wanted: Iterable[int], taken: Mapping[int, ServerIdHolder]) -> int | Taken:
    """The first of ``wanted`` (at least one) that is not held; if all are held, the first one with its holder."""
    first: Taken | None = None
    for server_id in wanted:
        holder = taken.get(server_id)
        if holder is None:
            return server_id
        first = first or Taken(server_id, holder)
    if first is None:
        raise ValueError("no server id is requested")
    return first


def patience_seconds(holder: ServerIdHolder, source: str) -> float:
    """How long to wait until ``source`` may assume that ``holder`` will not release its id.

    For another source: until its lease would have expired if it was dead. Twice the lease's time, because a new leader
    of etcd renews all leases for their whole time (etcd's documentation, "Lease", checkpoints), and a second until etcd
    checks. A worker that still has the same source is about to stop: wait for it without limit.
    """
    return math.inf if holder.source == source else 2 * holder.lease_seconds + 1


def server_of(info: ServerInfo) -> str:
    """An identifier of the server that does not depend on the address used to reach it, and differs between servers.

    MySQL: its UUID. MariaDB has none, and many servers have server id 1: the id with its own host name and port.
    """
    return info.server_uuid or f"server-id {info.server_id} at {info.host}:{info.port}"
