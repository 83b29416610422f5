"""The database servers that this process has logged in to, for its report about itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from shardmerge.proto.escaped_text import escaped

_MOST_SERVERS = 64
_MOST_CHARS = 100


@dataclass(frozen=True, slots=True)
class ServerLogin:
    """``side``: source or target; ``version``: as the server reports it at a login; ``at``: Unix seconds."""

    side: str
    address: str
    version: str
    at: float


class SeenServers:
    """Thread-safe. A server that was not used for the longest time leaves when there are too many."""

    def __init__(self, most: int = _MOST_SERVERS, clock: Callable[[], float] = time.time) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._logins: dict[tuple[str, str], ServerLogin] = {}

    def add(self, side: str, host: str, port: int, version: str) -> None:
        """Record a login."""
        address = escaped(f"{host}:{port}", 4 * _MOST_CHARS)
        login = ServerLogin(side, address, escaped(version, _MOST_CHARS), self._clock())
        with self._lock:
            self._logins.pop((side, address), None)
            self._logins[side, address] = login
            while len(self._logins) > self._most:
                del self._logins[next(iter(self._logins))]

    def logins(self) -> tuple[ServerLogin, ...]:
        """The servers, by side and address."""
        with self._lock:
            return tuple(self._logins[key] for key in sorted(self._logins))


OF_PROCESS = SeenServers()
