"""Checks the server of a source that has no tasks: its operator learns what is wrong before a task needs it.

`operate-source create` stores a source unchecked when no worker is alive. Its first worker executes the checks that
the command would have requested, and repeats them until they succeed. Tasks report errors of the source by themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from shardmerge.proto import config_pb2, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import CLOCK, LAST, Backoff, Clock, LoopThread, repeat
from shardmerge.proto.rpc.source_checks import source_failure
from shardmerge.worker.verify.precheck import check_source

log = get_logger()

_BACKOFF = Backoff(5.0, 60.0)
"""The pauses grow: a server may lock an account after several wrong passwords."""


class SourceCheck:
    """Runs in a thread of its own until the checks succeed or :meth:`stop` is called."""

    def __init__(
        self,
        source: config_pb2.SourceConfig,
        check: Callable[[config_pb2.SourceConfig], Sequence[worker_pb2.CheckResult]] = check_source,
        clock: Clock = CLOCK,
    ) -> None:
        self._source = source
        self._check = check
        self._error: ShardmergeError | None = None
        self._failures = 0
        self._thread = LoopThread(
            "source-check", lambda stop: repeat(lambda: self._attempt(stop), 0.0, stop, clock=clock)
        )
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    @property
    def error(self) -> ShardmergeError | None:
        """Why the source cannot be used; None while that is unknown, and when it can."""
        return self._error

    def stop(self) -> None:
        """End it without waiting: a check may wait for the server."""
        self._thread.end(0)
        self._error = None

    def _attempt(self, stop: threading.Event) -> float:
        """Check once; returns the pause before the next attempt."""
        error = source_failure(self._check(self._source), self._source.source_id)
        if stop.is_set():
            return LAST
        if error is None:
            if self._error is not None:
                log.info("the source can be used now", source=self._source.source_id)
            self._error = None
            return LAST
        if self._error is None:
            log.error("the source cannot be used", source=self._source.source_id, error=str(error))
        self._error = error
        self._failures += 1
        return _BACKOFF.seconds(self._failures)
