"""Watches a prefix: reports "something may have changed" repeatedly, whatever happens to etcd."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Protocol

import grpc

from shardmerge.proto.etcd.api import rpc
from shardmerge.proto.etcd.connection import Connection
from shardmerge.proto.etcd.types import range_end
from shardmerge.proto.process.periodic import Stop
from shardmerge.proto.work_share import WorkShare

_STOP_POLL_SECONDS = 0.2
_PAUSE_AFTER_FAILURE_SECONDS = 0.3


class Client(Protocol):
    """What a watch needs of its :class:`shardmerge.proto.etcd.client.Etcd`."""

    @property
    def closed(self) -> bool: ...

    def connection(self) -> Connection:
        """The endpoint in use."""
        ...

    def failed(self, connection: Connection) -> None:
        """``connection`` did not answer: the next caller tries another endpoint first."""
        ...


def watch(client: Client, prefix: str, start_revision: int, stop: Stop, resync_seconds: float) -> Iterator[None]:
    """Yield whenever something under ``prefix`` may have changed; the caller reads the prefix and acts.

    ``start_revision``: the revision of the read on which the caller has acted already; changes after it are reported.
    0: report once as soon as the watch is established, so that the caller's first read misses nothing.

    No change is missed: after every interruption (etcd restarted, history compacted) it yields once the new watch is
    established. Several changes may be reported as one, and a report may be without a change; it also yields every
    ``resync_seconds``. It never raises because of etcd, and ends when ``stop`` is set or the client is closed.
    """
    changed = threading.Event()
    stream = _Stream(client, prefix, start_revision, changed)
    stream.start()
    try:
        last = time.monotonic()
        share = WorkShare(share=0.3, burst=0.5, longest=0.25)
        while not stop.wait(0) and not client.closed:
            due = last + resync_seconds - time.monotonic()
            if changed.wait(max(0.0, min(due, _STOP_POLL_SECONDS))) or due <= 0:
                changed.clear()
                last = time.monotonic()
                yield
                stop.wait(share.pause(last, time.monotonic()))
    finally:
        stream.close()


class _Stream:
    """Holds a watch stream open and sets ``changed``."""

    def __init__(self, client: Client, prefix: str, start_revision: int, changed: threading.Event) -> None:
        self._client = client
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
        while not self._closed.is_set() and not self._client.closed:
            connection = self._client.connection()
            try:
                self._follow(connection)
            except (grpc.RpcError, ValueError):  # ValueError: the channel was closed
                if self._closed.is_set() or self._client.closed:
                    return
                self._client.failed(connection)
            # What happened since is unknown: watch from now on, and report once the watch is established.
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
        # The request side stays open as long as the stream is needed: etcd ends the watch with it.
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
