"""Writes the events of one process into etcd, in a thread of its own.

The history is best effort: an event is given away without waiting, an entry that cannot be written waits in memory, and
the failure is logged once in ten minutes. An entry keeps its key, so that a write that may have happened is repeated
without a second entry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd, Put
from shardmerge.proto.log import get_logger
from shardmerge.proto.log_rate_limit import RateLimit
from shardmerge.proto.process.periodic import Backoff
from shardmerge.proto.task_history.event import Event, HistoryEntry
from shardmerge.proto.task_history.pending import PendingEntries
from shardmerge.proto.task_history.record import cut, encode, key_of, storable

log = get_logger()

_BATCH = 50
_LONGEST_WAIT_SECONDS = 60.0
_BACKOFF = Backoff(1.0, 60.0)
_LOG_SECONDS = 600.0
_TEXT_CHARS = 4_000
"""An event's texts are kept in memory until it is written."""


def puts_of(
    entries: Sequence[HistoryEntry], writer: str, incarnation: str
) -> tuple[list[Put], list[tuple[HistoryEntry, str]]]:
    """The writes of ``entries``, and the entries that have no stored form, each with the reason. Pure."""
    puts: list[Put] = []
    failed: list[tuple[HistoryEntry, str]] = []
    for entry in entries:
        try:
            puts.append(Put(key_of(entry), encode(entry, writer, incarnation)))
        except Exception as error:  # noqa: BLE001 - a bug loses an entry, not those beside it
            failed.append((entry, f"{type(error).__name__}: {error}"))
    return puts, failed


class Recorder:
    """A :class:`shardmerge.proto.task_history.event.History`. Thread-safe. ``writer``: kind and name of the process,
    ``incarnation``: of this start of it."""

    def __init__(self, etcd: Etcd, writer: str, incarnation: str) -> None:
        self._etcd = etcd
        self._writer = writer
        self._incarnation = incarnation
        self._pending = PendingEntries(incarnation[:8])
        self._changed = threading.Condition()
        self._ending = False
        self._log_limit = RateLimit(_LOG_SECONDS)
        self._thread = threading.Thread(target=self._run, name="task-history", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, event: Event) -> None:
        short = replace(event, message=cut(event.message, _TEXT_CHARS), statement=cut(event.statement, _TEXT_CHARS))
        with self._changed:
            self._pending.add(short, time.monotonic())
            self._changed.notify()

    def separate(self, task: str, source: str) -> None:
        with self._changed:
            self._pending.separate(task, source)

    def end(self, seconds: float) -> None:
        """Write what waits, for up to ``seconds``; what is not written by then is lost."""
        with self._changed:
            self._ending = True
            self._pending.hurry()
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                if failures and not self._ending:
                    self._changed.wait_for(lambda: self._ending, _BACKOFF.seconds(failures))
                batch = self._next_batch()
            if not batch:
                return
            if self._is_done(batch):
                failures = 0
            else:
                failures += 1
                with self._changed:
                    if self._ending:
                        return
                    self._pending.put_back(batch, time.monotonic())

    def _next_batch(self) -> list[HistoryEntry]:
        """The entries that are due, after waiting for one; none: the process ends and all is written."""
        while True:
            now = time.monotonic()
            batch = self._pending.take_due(now, _BATCH)
            if batch or self._ending:
                return batch
            due = self._pending.next_at()
            seconds = _LONGEST_WAIT_SECONDS if due is None else min(due - now, _LONGEST_WAIT_SECONDS)
            self._changed.wait(max(0.0, seconds))

    def _is_done(self, batch: list[HistoryEntry]) -> bool:
        """Write ``batch``; False: it is to be tried again."""
        puts, failed = puts_of(batch, self._writer, self._incarnation)
        for entry, reason in failed:
            self._log_lost(entry, reason)
        if not puts:
            return True
        try:
            # Without a condition: only this process writes these keys, and a history is for reading only.
            self._etcd.txn([], puts)
        except ShardmergeError as error:
            self._log(str(error))
            return False
        except Exception as error:  # noqa: BLE001 - a bug loses a batch, not all that follows
            self._log(f"{type(error).__name__}: {error}")
        return True

    def _log_lost(self, entry: HistoryEntry, reason: str) -> None:
        left_out = self._log_limit.left_out(entry.event.kind)
        if left_out is not None:
            log.warning(
                "an entry of the history of tasks cannot be stored",
                kind=entry.event.kind,
                task=storable(entry.event.task),
                error=reason,
                left_out=left_out,
            )

    def _log(self, reason: str) -> None:
        left_out = self._log_limit.left_out("write")
        if left_out is not None:
            log.warning("the history of tasks cannot be written", error=reason, left_out=left_out)
