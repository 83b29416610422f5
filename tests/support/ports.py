"""Free loopback ports."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

# Below those that the system gives to outgoing connections (32768 and up): one of these could take a port between
# its choice and its use, or while a killed server is away.
_CHOICE = range(10_000, 32_000)
_ANYHOW = random.SystemRandom()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    while True:
        port = _ANYHOW.choice(_CHOICE)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
