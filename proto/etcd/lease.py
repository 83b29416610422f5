"""A lease: records under it are deleted when its holder stops renewing it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.process.periodic import LAST, LoopThread, repeat

_PAUSE_AFTER_FAILURE_SECONDS = 0.3


def now() -> float:
    """Seconds of the clock of leases: it also counts while the machine is suspended, unlike the monotonic clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Renewer(Protocol):
    """What a lease needs of the client."""

    def keep_alive(self, lease: int, seconds: float) -> int: ...
    def revoke(self, lease: int) -> None: ...


class Lease:
    """A lease that a thread renews every third of its time until it is revoked or lost.

    ``lost`` is set as soon as the lease may have ended: etcd reports it, or it could not be renewed for its whole time.
    The local clock starts when the renewal is *sent*, so this side knows before etcd does. A lost lease is not renewed
    again: request a new one. ``sent_at``: when it was requested, by :func:`now`.
    """

    def __init__(self, renewer: Renewer, lease: int, ttl: float, sent_at: float) -> None:
        self.id = lease
        self.ttl = ttl
        self.lost = threading.Event()
        self._renewer = renewer
        self._deadline = sent_at + ttl
        self._thread = LoopThread(
            f"etcd-lease-{lease:x}", lambda stop: repeat(self._renew, 0.0, stop, first=self._at_the_latest(ttl / 3))
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        """By the clock, so it is correct even if the renewing thread was not scheduled (a stopped process)."""
        return not self.lost.is_set() and now() < self._deadline

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends unless it is renewed; at least 0."""
        return 0.0 if self.lost.is_set() else max(0.0, self._deadline - now())

    def revoke(self) -> None:
        """Stop renewing and delete the lease's records now; if etcd is unreachable they expire by themselves."""
        self._thread.end()
        with contextlib.suppress(ShardmergeError):
            self._renewer.revoke(self.id)
        self.lost.set()

    def abandon(self) -> None:
        """Stop renewing without a call to etcd: the records stay until the time is over."""
        self._thread.end()

    def _at_the_latest(self, pause: float) -> float:
        return min(pause, max(0.0, self._deadline - now()))

    def _renew(self) -> float:
        """Renew it once, and return the pause before the next time; none once it is lost."""
        sent_at = now()
        left = self._deadline - sent_at
        try:
            ttl = self._renewer.keep_alive(self.id, min(left, self.ttl / 3)) if left > 0 else 0
        except ShardmergeError as error:
            if error.spec is errors.master.ETCD_UNAVAILABLE:
                return self._at_the_latest(_PAUSE_AFTER_FAILURE_SECONDS)
            ttl = 0
        if ttl <= 0:
            self.lost.set()
            return LAST
        self._deadline = sent_at + ttl
        return self._at_the_latest(self.ttl / 3)
