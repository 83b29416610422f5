"""Accepts the connections of the HTTP endpoint, and bounds their number from the accept on: TLS handshakes count."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from shardmerge.proto.http.connection import HEAD_SECONDS, LimitedConnection

MOST_CONNECTIONS = 32
_PROTECTED_SECONDS = 6.0
"""A connection that has been answered for longer counts as waiting: the slowest page takes 5 seconds."""
_FRESH_SECONDS = 1.0
"""A connection without a request counts as waiting after this time."""
_PAUSE_SECONDS = 1.0
"""After an accept that failed, for example without a free file descriptor."""

Make = Callable[[], LimitedConnection]


class Acceptor:
    """Used in the endpoint's loop. ``context``: for the connections that follow, None: without TLS.

    When there are too many connections, the one that has waited longest ends, and the new one is taken: a caller that
    holds many connections open must not keep probes and Prometheus away. One that is being answered ends only if all
    are.
    """

    def __init__(
        self, listening: socket.socket, make: Make, connected: Callable[[], Collection[LimitedConnection]]
    ) -> None:
        self.context: ssl.SSLContext | None = None
        self._listening = listening
        self._make = make
        self._connected = connected
        self._begun: dict[asyncio.Task[None], tuple[float, LimitedConnection]] = {}

    async def run(self) -> None:
        """Accept until it is cancelled; then handshakes end, and established connections stay."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(self._listening)
                except OSError:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self._admit(accepted)
                await asyncio.sleep(0)  # an accept that finds a caller waiting does not let others run
        finally:
            for task in self._begun:
                task.cancel()

    def _admit(self, accepted: socket.socket) -> None:
        if len(self._handshakes()) + len(self._connected()) >= MOST_CONNECTIONS:
            self._make_room()
        loop = asyncio.get_running_loop()
        connection = self._make()
        task = loop.create_task(self._connect(accepted, connection))
        self._begun[task] = loop.time(), connection
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._begun.pop(task, None)

    def _handshakes(self) -> dict[asyncio.Task[None], float]:
        """Those in progress, and when they began. A task ends a little after its connection is made."""
        made = self._connected()
        return {task: began for task, (began, connection) in self._begun.items() if connection not in made}

    async def _connect(self, accepted: socket.socket, connection: LimitedConnection) -> None:
        context = self.context
        seconds = None if context is None else HEAD_SECONDS
        try:
            with suppress(OSError):  # a handshake that fails or takes too long, or a caller that has gone
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection, accepted, ssl=context, ssl_handshake_timeout=seconds
                )
        except BaseException:
            accepted.close()
            raise

    def _make_room(self) -> None:
        """End the connection that matters least: those that have waited for long come first, the longest one of them.
        Without any: that with the most answers, so that a caller that sends one request after the other ends before
        one that has just come; of several one without a request, and the oldest."""
        now = asyncio.get_running_loop().time()
        found: list[tuple[tuple[bool, int, bool, float], Callable[[], object]]] = []
        for task, began in self._handshakes().items():
            found.append(((began >= now - _FRESH_SECONDS, 0, False, began), partial(self._cancel, task)))
        for each in self._connected():
            if each.transport.is_closing():
                continue
            is_busy = each.is_answering
            if each.since >= now - (_PROTECTED_SECONDS if is_busy else _FRESH_SECONDS):
                found.append(((True, -each.answers, is_busy, each.since), each.transport.abort))
            else:
                found.append(((False, 0, False, each.since), each.transport.abort))
        if found:
            min(found, key=lambda one: one[0])[1]()

    def _cancel(self, task: asyncio.Task[None]) -> None:
        self._begun.pop(task, None)  # at once: it ends only after the next rounds of the loop
        task.cancel()
