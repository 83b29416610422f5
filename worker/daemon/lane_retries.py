"""Attempts of lanes that have failed and are repeated, for the history of the task."""

from __future__ import annotations

import threading
import time

from shardmerge.proto import relay_pb2
from shardmerge.proto.task_history.event import Event, History, Kind

_Lane = tuple[str, str, int, int]


class LaneRetries:
    """Thread-safe. A report of a lane that works costs nothing."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = threading.Lock()
        self._attempts: dict[_Lane, tuple[int, int]] = {}

    def observe(self, report: relay_pb2.LaneReport) -> None:
        """An event for each failed attempt; a lane reports one several times."""
        is_retrying = report.HasField("retrying")
        if not is_retrying and not self._attempts:
            return
        who = report.who
        lane = who.task, who.source, who.stream, who.index
        attempt = who.epoch, report.attempt
        with self._lock:
            if not is_retrying:
                self._attempts.pop(lane, None)
                return
            if self._attempts.get(lane) == attempt:
                return
            self._attempts[lane] = attempt
        error = report.retrying
        self._history.add(
            Event(
                who.task,
                Kind.ERROR,
                time.time(),
                "a lane repeats its transaction",
                (who.source,),
                same=f"lane {error.code}",
                epoch=who.epoch,
                code=error.code,
                name=error.name,
                message=error.message,
            )
        )
