"""Decides whether a relay log has reached an earlier end of its source's binlog."""

from __future__ import annotations

from shardmerge.worker.core.position import SourcePosition


class CaughtUp:
    """Records an end of the source's binlog and decides later whether the relay log has reached it.

    Once it answers True, the relay log has everything that the source had written at the first call.
    """

    def __init__(self) -> None:
        self._recorded_end: SourcePosition | None = None

    def has(self, head: SourcePosition, end: SourcePosition) -> bool:
        """``head``: of the relay log; ``end``: of the source's binlog as last read, without a file if it never was.
        After a fail-over the end of the present server is recorded instead."""
        if self._recorded_end is not None and head.reaches(self._recorded_end):
            return True
        if end.file and (self._recorded_end is None or not self._recorded_end.same_server(end)):
            self._recorded_end = end
        return False
