"""Provides loopback ports, each for one user at a time."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle

# These ports are below those that the system uses for outgoing connections (32768 and up): one of those could take a
# port between its choice and its use, or while a killed server is down.
_CHOICE = range(10_000, 32_000)
_BLOCK = 500


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago, and that is not returned again soon.

    A port may be used much later: a worker listens when its Spark runs. So it is not enough that a port is free now:
    sometimes two daemons of one test would get the same one.
    """
    while True:
        port = next(_own_ports())
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@cache
def _own_ports() -> Iterator[int]:
    """Return the ports of a block that this process owns until its end, in an endless cycle."""
    for first in random.sample(_CHOICE[::_BLOCK], len(_CHOICE) // _BLOCK):
        # Only one process of the machine can own this name, and the name is free again when that process has ended in
        # any way.
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0shardmerge-tests-ports-{first}")
        except OSError:
            claim.close()
        else:
            _claims.append(claim)
            return cycle(range(first, first + _BLOCK))
    raise AssertionError(f"all ports from {_CHOICE.start} to {_CHOICE.stop} are other tests'")


_claims: list[socket.socket] = []
