"""Watching a prefix: "something may have changed", again and again, whatever happens to etcd."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import grpc

from proto.etcd.api import rpc
from proto.etcd.types import range_end

if TYPE_CHECKING:
    from proto.etcd.client import Connection, Etcd

_STOP_POLL_SECONDS = 0.2
_PAUSE_AFTER_FAILURE_SECONDS = 0.3


class Stop(Protocol):
    """``threading.Event`` and ``worker.unit.StopSignal`` both fit."""

    def wait(self, seconds: float, /) -> bool:
        """Wait up to ``seconds``; True once stopped."""
        ...


def watch(etcd: Etcd, prefix: str, start_revision: int, stop: Stop, resync_seconds: float) -> Iterator[None]:
    """Yield whenever something under ``prefix`` may have changed; the caller reads the prefix and acts.

    ``start_revision``: the revision of the read on which the caller has acted already; changes after it
    are reported. 0: report once as soon as the watch stands, so that the caller's first read misses nothing.

    No change is missed: after every interruption (etcd restarted, history compacted) it yields once the new
    watch stands. Several changes may be reported as one, and a report may be for nothing; it also yields
    every ``resync_seconds``. It never raises for etcd's sake, and ends when ``stop`` is set or the client is
    closed.
    """
    changed = threading.Event()
    stream = _Stream(etcd, prefix, start_revision, changed)
    stream.start()
    try:
        last = time.monotonic()
        while not stop.wait(0) and not etcd.closed:
            due = last + resync_seconds - time.monotonic()
            if changed.wait(max(0.0, min(due, _STOP_POLL_SECONDS))) or due <= 0:
                changed.clear()
                last = time.monotonic()
                yield
    finally:
        stream.close()


class _Stream:
    """Holds a watch stream open and sets ``changed``."""

    def __init__(self, etcd: Etcd, prefix: str, start_revision: int, changed: threading.Event) -> None:
        self._etcd = etcd
        self._prefix = prefix
        self._next = start_revision + 1 if start_revision else 0
        self._changed = changed
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._call: grpc.Call | None = None
        self._thread = threading.Thread(target=self._run, name=f"etcd-watch-{prefix}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set() and not self._etcd.closed:
            connection = self._etcd.connection()
            try:
                self._follow(connection)
            except (grpc.RpcError, ValueError):  # ValueError: the channel was closed
                if self._closed.is_set() or self._etcd.closed:
                    return
                self._etcd.failed(connection)
            # What happened since is unknown: watch from then on, and report once the watch stands.
            self._next = 0
            self._closed.wait(_PAUSE_AFTER_FAILURE_SECONDS)

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            if self._call is not None:
                self._call.cancel()

    def _follow(self, connection: Connection) -> None:
        requests: queue.SimpleQueue[rpc.WatchRequest | None] = queue.SimpleQueue()
        requests.put(
            rpc.WatchRequest(
                create_request=rpc.WatchCreateRequest(
                    key=self._prefix.encode(), range_end=range_end(self._prefix), start_revision=self._next
                )
            )
        )
        # The request side stays open as long as the stream is wanted: etcd ends the watch with it.
        call = connection.watch.Watch(iter(requests.get, None))
        with self._lock:
            self._call = call
            if self._closed.is_set():
                call.cancel()
        try:
            for response in call:
                if response.canceled:
                    return
                if response.events or (response.created and not self._next):
                    self._changed.set()
        finally:
            requests.put(None)
            call.cancel()
