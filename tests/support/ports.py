"""Loopback ports, each for one user at a time."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle

# Below those that the system gives to outgoing connections (32768 and up): one of these could take a port between
# its choice and its use, or while a killed server is away.
_CHOICE = range(10_000, 32_000)
_BLOCK = 500


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago, and that nobody else is given soon.

    Much later is a port used: a worker listens when its Spark runs. So what is free now is not enough, two daemons
    of one test would now and then be given the same one.
    """
    while True:
        port = next(_own_ports())
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@cache
def _own_ports() -> Iterator[int]:
    """The ports of a block that is this process's until its end, again and again."""
    for first in random.sample(_CHOICE[::_BLOCK], len(_CHOICE) // _BLOCK):
        # A name that one process of the machine can have, and that is free when it has ended, however it has.
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
