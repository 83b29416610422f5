"""Errors of a source's relay log for the histories of the tasks that read it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.task_history.event import Event, History, Kind


class RelayHistory:
    """One thread calls :meth:`observe` repeatedly with the relay's present error."""

    def __init__(self, history: History, source: str) -> None:
        self._history = history
        self._source = source
        self._code = 0

    def observe(self, error: ShardmergeError | None, tasks: Sequence[str]) -> None:
        """Report an error that is not the one of the last call, and that there is none any more."""
        code = 0 if error is None else error.code
        if code == self._code:
            return
        self._code = code
        for task in tasks:
            text = "the relay log is fetched again" if error is None else "the relay log is not fetched"
            self._history.add(
                Event(
                    task,
                    Kind.ERROR,
                    time.time(),
                    text,
                    (self._source,),
                    same=f"relay {code}",
                    code=code,
                    name="" if error is None else error.spec.name,
                    message="" if error is None else error.message,
                )
            )
