"""One connection to the HTTP endpoint, with limits: its caller's certificate, and the time that it may hold on."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from shardmerge.proto.tls.process import name_allowed

HEAD_SECONDS = 10.0
"""From the connection to the end of the first request's head."""
IDLE_SECONDS = 90.0
"""From an answer to the end of the next request's head: longer than the usual interval between two scrapes."""
ANSWER_SECONDS = 30.0
"""From a request to the end of its answer, if the caller reads slowly."""


class LimitedConnection(H11Protocol):
    """Ends a connection that exceeds a limit, without an answer. ``since``: the loop's time at which it was made, its
    last request began, or its last answer was complete. ``answers``: how many it has had."""

    since = 0.0
    answers = 0
    _deadline: asyncio.TimerHandle | None = None
    _is_overdue = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        if not _is_allowed(transport):
            transport.abort()
            return
        self._end_in(HEAD_SECONDS)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self.since = self.loop.time()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        self.answers += 1
        self._is_overdue = False
        self._end_in(IDLE_SECONDS)
        super().on_response_complete()

    @property
    def is_answering(self) -> bool:
        """Whether it has a request, or an answer that is not sent yet."""
        return bool(self.cycle and not self.cycle.response_complete) or self.transport.get_write_buffer_size() > 0

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _end_in(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        if self.cycle and not self.cycle.response_complete and not self._is_overdue:
            self._is_overdue = True
            self._end_in(ANSWER_SECONDS)
            return
        self.transport.abort()


def _is_allowed(transport: asyncio.Transport) -> bool:
    """Whether the caller's certificate is of an allowed name; without TLS every caller is allowed."""
    if transport.get_extra_info("ssl_object") is None:
        return True
    certificate: dict[str, Any] = transport.get_extra_info("peercert") or {}
    return name_allowed(common_name(certificate))


def common_name(certificate: dict[str, Any]) -> str:
    """The first common name of a certificate as ``ssl`` describes it, "" without one. Pure."""
    pairs = (pair for part in certificate.get("subject", ()) for pair in part)
    return next((str(value) for key, value in pairs if key == "commonName"), "")
