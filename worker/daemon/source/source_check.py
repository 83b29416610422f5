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
from shardmerge.proto.rpc.source_checks import source_failure
from shardmerge.worker.verify.precheck import check_source

log = get_logger()

_FIRST_PAUSE_SECONDS = 5.0
_LAST_PAUSE_SECONDS = 60.0
"""Longest pause between two attempts: a server may lock an account after several wrong passwords."""


class SourceCheck:
    """Runs in a thread of its own until the checks succeed or :meth:`stop` is called."""

    def __init__(
        self,
        source: config_pb2.SourceConfig,
        check: Callable[[config_pb2.SourceConfig], Sequence[worker_pb2.CheckResult]] = check_source,
    ) -> None:
        self._source = source
        self._check = check
        self._stop = threading.Event()
        self._error: ShardmergeError | None = None
        self._thread = threading.Thread(target=self._run, name="source-check", daemon=True)
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
        self._stop.set()
        self._error = None

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stop.is_set():
            error = source_failure(self._check(self._source), self._source.source_id)
            if self._stop.is_set():
                return
            if error is None:
                if self._error is not None:
                    log.info("the source can be used now", source=self._source.source_id)
                self._error = None
                return
            if self._error is None:
                log.error("the source cannot be used", source=self._source.source_id, error=str(error))
            self._error = error
            self._stop.wait(pause)
            pause = min(pause * 2, _LAST_PAUSE_SECONDS)
