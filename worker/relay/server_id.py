"""Which server id a relay connects to its source with. Pure; worker/leased_server_id.py holds it in etcd.

A server ends an older dump when a new one with the same id begins: MariaDB goes by the server id, MySQL by the
replica's UUID, which is made of the server id here (worker/relay/reader.py). Two replicas with one id end each other's
dumps for ever. MySQL 8.4 Reference Manual, "Replication and Binary Logging Options and Variables" (server_id,
server_uuid); MariaDB Knowledge Base, "Replication and Binary Log System Variables" (server_id).
"""

from __future__ import annotations

import math
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from worker.connection import ServerInfo

ServerIdOf = Callable[[ServerInfo], int]
"""Asked before each dump, which server it is of: the server id to use. May raise a catalogue error."""

_LOWEST = 0x8000_0000
"""Derived ids stay clear of those that people give. A server id has 32 bits."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a server id; ``lease_seconds``: for how long it does after it was heard of last."""

    worker: str
    source: str
    lease_seconds: int

    def __str__(self) -> str:
        return f"worker {self.worker} for source {self.source}"


@dataclass(frozen=True, slots=True)
class Taken:
    """The server id that was wanted, and who holds it."""

    server_id: int
    holder: Holder


def unleased(server_id: int) -> ServerIdOf:
    """This id, whoever else uses it: where no other relay can."""
    return lambda _: server_id


def derived(directory: Path) -> int:
    """An id that stays the same as long as this machine keeps its relay log there."""
    return _LOWEST | zlib.crc32(f"{socket.gethostname()}:{directory.resolve()}".encode())


def candidates(first: int, own: int) -> Iterator[int]:
    """Every id that may be derived, each once, from ``first`` (of :func:`derived`) on; without the source's ``own``."""
    for number in range(_LOWEST):
        candidate = _LOWEST + (first + number) % _LOWEST
        if candidate != own:
            yield candidate


def choose(wanted: Iterable[int], taken: Mapping[int, Holder]) -> int | Taken:
    """The first of ``wanted`` (at least one) that nobody has; when there is none, who has the first."""
    first: Taken | None = None
    for server_id in wanted:
        holder = taken.get(server_id)
        if holder is None:
            return server_id
        first = first or Taken(server_id, holder)
    if first is None:
        raise ValueError("no server id is wanted")
    return first


def patience_seconds(holder: Holder, source: str) -> float:
    """How long to wait until ``source`` may say that ``holder`` will not give its id up.

    For another source: until its lease would be over if it was dead. Twice the lease's time, for a new leader of etcd
    gives all leases their whole time again (etcd's documentation, "Lease", checkpoints), and a second until etcd looks.
    A worker that has this very source still is about to stop, so that is waited for without end.
    """
    return math.inf if holder.source == source else 2 * holder.lease_seconds + 1


def server_of(info: ServerInfo) -> str:
    """What two relays of one server both call it, whatever address they reach it by, and two servers differ in.

    MySQL's UUID. MariaDB has none and lets many servers have server id 1: its own host name and port beside that.
    """
    return info.server_uuid or f"server-id {info.server_id} at {info.host}:{info.port}"
