"""Keeps the last warnings and errors of the log in memory, in a bounded number of bytes."""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.proto.diagnostics.log_event import line_of_event, line_of_record

_KEPT = frozenset({"warning", "error", "critical"})
FIRST_LINES = 20
LAST_LINES = 200
MOST_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Lines:
    """``first``: the first lines after the start, which have the warnings about the configuration; ``last``: the last
    ones after these; ``dropped``: how many were between both."""

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    dropped: int = 0


class RecentLines:
    """Thread-safe. The first ``first_lines`` lines and the last ``last_lines``, of ``most_bytes`` together."""

    def __init__(
        self, first_lines: int = FIRST_LINES, last_lines: int = LAST_LINES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._first_lines, self._last_lines, self._most_bytes = first_lines, last_lines, most_bytes
        self._lock = threading.Lock()
        self._first: list[str] = []
        self._last: deque[str] = deque()
        self._bytes = 0
        self._dropped = 0

    def keep(self, event: Mapping[str, object]) -> None:
        """Keep a structured event if it is a warning or an error."""
        if event.get("level") in _KEPT:
            self._add(line_of_event(event, sys.exception()))

    def keep_record(self, record: logging.LogRecord) -> None:
        """Keep a library's message, which is a warning or an error."""
        self._add(line_of_record(record))

    def lines(self) -> Lines:
        """The kept lines."""
        with self._lock:
            return Lines(tuple(self._first), tuple(self._last), self._dropped)

    def _add(self, line: str) -> None:
        size = _size(line)
        with self._lock:
            if not self._last and len(self._first) < self._first_lines and self._bytes + size <= self._most_bytes // 2:
                self._first.append(line)
                self._bytes += size
                return
            self._last.append(line)
            self._bytes += size
            while self._last and (len(self._last) > self._last_lines or self._bytes > self._most_bytes):
                self._bytes -= _size(self._last.popleft())
                self._dropped += 1


def _size(line: str) -> int:
    return len(line.encode(errors="backslashreplace"))


OF_PROCESS = RecentLines()
"""The lines of this process's log, from :func:`shardmerge.proto.log.configure` on."""
