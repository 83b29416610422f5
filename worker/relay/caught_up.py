"""Whether a relay log has come to where its source's binlog once ended."""

from __future__ import annotations

from worker.position import SourcePosition


class CaughtUp:
    """Notes an end of the source's binlog, and is asked later whether the relay log has come so far.

    What the source had written when this was first asked is in the relay log once it answers True.
    """

    def __init__(self) -> None:
        self._noted: SourcePosition | None = None

    def has(self, head: SourcePosition, end: SourcePosition) -> bool:
        """``head``: of the relay log; ``end``: of the source's binlog as it was last told, without a file when it never
        was. After a fail-over the end of the server at hand is noted anew."""
        if self._noted is not None and head.reaches(self._noted):
            return True
        if end.file and (self._noted is None or not self._noted.same_server(end)):
            self._noted = end
        return False
