"""A lease: records under it are deleted when its holder stops renewing it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError

_PAUSE_AFTER_FAILURE_SECONDS = 0.3


class Renewer(Protocol):
    """What a lease needs of the client."""

    def keep_alive(self, lease: int, seconds: float) -> int: ...
    def revoke(self, lease: int) -> None: ...


class Lease:
    """A lease that a thread renews every third of its time until it is revoked or lost.

    ``lost`` is set as soon as the lease may have ended: etcd reports it, or it could not be renewed for its whole time.
    The local clock starts when the renewal is *sent*, so this side knows before etcd does. A lost lease is not renewed
    again: request a new one.
    """

    def __init__(self, renewer: Renewer, lease: int, ttl: float, sent_at: float) -> None:
        self.id = lease
        self.ttl = ttl
        self.lost = threading.Event()
        self._renewer = renewer
        self._deadline = sent_at + ttl
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"etcd-lease-{lease:x}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """By the clock, so it is correct even if the renewing thread was not scheduled (a stopped process)."""
        return not self.lost.is_set() and time.monotonic() < self._deadline

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends unless it is renewed; at least 0."""
        return 0.0 if self.lost.is_set() else max(0.0, self._deadline - time.monotonic())

    def revoke(self) -> None:
        """Stop renewing and delete the lease's records now; if etcd is unreachable they expire by themselves."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(ShardmergeError):
            self._renewer.revoke(self.id)
        self.lost.set()

    def abandon(self) -> None:
        """Stop renewing without a call to etcd: the records stay until the time is over."""
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        pause = self.ttl / 3
        while not self._ended.wait(min(pause, max(0.0, self._deadline - time.monotonic()))):
            left = self._deadline - time.monotonic()
            if left <= 0:
                self.lost.set()
                return
            sent_at = time.monotonic()
            try:
                ttl = self._renewer.keep_alive(self.id, min(left, self.ttl / 3))
            except ShardmergeError as error:
                if error.spec is not errors.master.ETCD_UNAVAILABLE:
                    self.lost.set()
                    return
                pause = _PAUSE_AFTER_FAILURE_SECONDS
                continue
            if ttl <= 0:
                self.lost.set()
                return
            self._deadline = sent_at + ttl
            pause = self.ttl / 3
