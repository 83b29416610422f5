"""Decides where a relay log must begin, and when a new one replaces it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shardmerge.proto import errors
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.fetch.fetcher import FetcherState
from shardmerge.worker.relay.log.files import FIRST_BYTE
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.serve.locate import reaches_back

_STRANDING = frozenset(
    {
        errors.relay.SOURCE_LOG_GONE,
        errors.relay.SOURCE_LOG_RESET,
        errors.relay.SOURCE_GTIDS_GONE,
        errors.relay.SOURCE_CHANGED,
    }
)


class StartPolicy:
    """Decides by the contents of the log, the needs of subtasks and the end of the fetching; the caller holds its lock.

    ``needed``: the lowest checkpoint of any subtask, None without any. ``fetcher``: the state of the fetching.
    """

    def __init__(
        self,
        log: RelayLog,
        needed: Callable[[], RelayOffset | None],
        fetcher: Callable[[], FetcherState],
    ) -> None:
        self._log = log
        self._needed = needed
        self._fetcher = fetcher
        self._stranded_at: RelayOffset | None = None

    def new_start(self, position: SourcePosition, *, fresh: bool) -> SourcePosition | None:
        """Where a new generation must begin so that the log reaches back to ``position``; None: it does, and can
        continue.

        A log that is stranded (the source no longer has the events after its head, or has another binlog) is also
        replaced: if no checkpoint needs it and ``position`` is beyond it, or with ``fresh``.
        Raises POSITION_WITHOUT_FILE, POSITION_UNORDERED, and errors of the disk.
        """
        position = self._checked(position)
        if self._log.generation is None:
            return position
        if not reaches_back(self._log, position):
            return self._earlier(position, fresh)
        return position if self._begins_anew(position, fresh) else None

    def begin(self, position: SourcePosition) -> None:
        """Begin a new generation at ``position``. Raises errors of the disk."""
        self._log.begin(position)
        self._stranded_at = None

    def remember_stranding(self) -> None:
        """Remember the log's head if the source no longer has the events after it; valid until the head moves."""
        failure = self._fetcher().failed
        if failure is not None and failure.spec in _STRANDING:
            self._stranded_at = self._log.head().offset

    def _checked(self, position: SourcePosition) -> SourcePosition:
        if not position.file and not position.gtid_set:
            raise errors.relay.POSITION_WITHOUT_FILE(source=self._log.source, given="nothing")
        if position.file:
            return replace(position, pos=max(position.pos, FIRST_BYTE))
        if not str(GtidSet(position.gtid_set)):
            raise errors.relay.POSITION_WITHOUT_FILE(source=self._log.source, given=position.gtid_set)
        return position

    def _earlier(self, position: SourcePosition, fresh: bool) -> SourcePosition:
        """Where the log must begin to reach back to ``position`` and to everything that is needed now."""
        first = self._log.first().position
        if first.reaches(position) or fresh or self._needed() is None:
            return position
        if not (position.gtid_set and first.gtid_set):
            raise errors.relay.POSITION_UNORDERED(source=self._log.source, first=first, position=position)
        both = str(GtidSet(first.gtid_set).common(GtidSet(position.gtid_set)))
        if not both:
            raise errors.relay.POSITION_UNORDERED(source=self._log.source, first=first, position=position)
        return SourcePosition("", 0, both)

    def _begins_anew(self, position: SourcePosition, fresh: bool) -> bool:
        """Whether fetching cannot continue from the head and the log may be dropped."""
        self.remember_stranding()
        error = self._fetcher().error
        if fresh and error is not None and error.spec is errors.relay.SOURCE_LACKS_GTIDS:
            # The server may be a replica that gets the transactions yet; but no subtask needs the log that has them.
            return True
        if self._stranded_at is None or self._stranded_at != self._log.head().offset:
            return False
        head = self._log.head().position
        beyond = not head.reaches(position) and (position.reaches(head) or not head.same_server(position))
        return fresh or (self._fetcher().failed is not None and beyond and self._needed() is None)
