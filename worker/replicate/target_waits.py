"""Finds out what its lanes wait for at the target, a lock or disk space, for `query-status`, without a query for each
status."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pymysql

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import repeat
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.lock_waits import wait_phrase
from shardmerge.worker.core.mysql.server_errors import errno_of
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.replicate.lane.reporter import LanePhase
from shardmerge.worker.replicate.lane_coordinator import LaneState
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_LOOK_SECONDS = 2.0
_LONG_SECONDS = 2.0


class TargetWaits:
    """Queries the target every two seconds while a lane has been committing for longer than that; otherwise never.

    ``views``: the lanes now. ``tables``: quoted names of the target tables.
    """

    def __init__(
        self,
        context: Callable[[], RunContext],
        views: Callable[[], Sequence[LaneState]],
        tables: Callable[[], Sequence[str]],
    ) -> None:
        self._context, self._views, self._tables = context, views, tables
        self._lock = threading.Lock()
        self._shown: dict[int, str] = {}

    def of_lane(self, lane: int) -> str:
        """What the lane's statement waits for, one phrase; "": not known, or for nothing."""
        with self._lock:
            return self._shown.get(lane, "")

    def follow(self, stop: StopSignal) -> None:
        """Look until ``stop``, in a thread of its own."""
        repeat(self._look, _LOOK_SECONDS, stop)

    def _look(self) -> None:
        waiting = {
            view.lane: view.report.connection_id
            for view in self._views()
            if view.report is not None and _is_waiting(view)
        }
        shown = self._read(waiting) if waiting else {}
        with self._lock:
            self._shown = shown

    def _read(self, waiting: dict[int, int]) -> dict[int, str]:
        tables = self._tables()

        def read(session: Session) -> dict[int, str]:
            return {lane: wait_phrase(session, number, tables) for lane, number in waiting.items()}

        try:
            return self._context().at_target(read)
        except ShardmergeError as error:
            log.debug("lock waits not read", error=str(error))
        except pymysql.MySQLError as error:
            log.debug("lock waits not read", errno=errno_of(error))
        return {}


def _is_waiting(view: LaneState) -> bool:
    report = view.report
    return (
        report is not None
        and report.connection_id > 0
        and report.phase in (LanePhase.COMMITTING, LanePhase.RETRYING, LanePhase.STARTING)
        and report.phase_seconds + view.silent_seconds >= _LONG_SECONDS
    )
