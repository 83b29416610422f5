"""Finds in the relay log the statements that interrupt the copies of a snapshot's tables.

A table's chunks are read with the structure that the table had at one position, and are valid up to the first statement
on it after that position. A chunk may be committed only once the relay log has been searched up to the chunk's high
watermark: see :meth:`StatementWatch.admits`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.position import Located, RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import Head, Statement
from shardmerge.worker.relay.serve.locate import GroupEnds

log = get_logger()

_LOCATE_SECONDS = 600.0


def _no_end(offset: RelayOffset) -> None:
    pass


class StatementLog(Protocol):
    """The part of the relay log that is needed here: see shardmerge.worker.relay.relay.Relay."""

    @property
    def relay_id(self) -> str: ...

    def one_generation(self) -> AbstractContextManager[str]: ...

    def head(self) -> Head: ...

    def locate(
        self, position: SourcePosition, deadline_seconds: float, stop: StopSignal, *, ends: GroupEnds | None = None
    ) -> RelayOffset: ...

    def statements_from(self, offset: RelayOffset) -> Iterator[Statement]: ...


class StatementWatch:
    """Thread-safe. ``valid_from``: for each table, by number, a position at which it has the structure with which it is
    copied; statements before it do not matter. ``interrupted_by``: the tables that a statement interrupts.

    Methods raise LOCATE_TIMEOUT, OFFSET_PURGED, RELAY_DAMAGED, RELAY_RESTARTED and the error that stopped the relay.
    """

    def __init__(
        self,
        log: StatementLog,
        valid_from: Mapping[int, SourcePosition],
        interrupted_by: Callable[[Statement], frozenset[int]],
        stop: StopSignal,
        check_end: Callable[[RelayOffset], None] = _no_end,
    ) -> None:
        """``check_end``: raises the coded error if the task ends before that offset."""
        self._check_end = check_end
        self._log = log
        self._valid_from = valid_from
        self._interrupted_by = interrupted_by
        self._stop = stop
        self._lock = threading.Lock()
        self._relay_id = ""
        self._begin: dict[int, RelayOffset] = {}
        self._searched = RelayOffset(0, 0)
        self._found: dict[int, Statement] = {}

    def search(self) -> Mapping[int, Statement]:
        """Search up to the relay log's head; returns the first statement that interrupts each table, by number."""
        with self._lock:
            return dict(self._search())

    def known(self) -> Mapping[int, Statement]:
        """As :meth:`search`, but without waiting: a part of it, or nothing, while it would have to wait."""
        if not self._lock.acquire(blocking=False):
            return {}
        try:
            return dict(self._search()) if self._relay_id == self._log.relay_id else {}
        except ShardmergeError as error:  # it decides again when a chunk is read
            log.debug("statements cannot be searched", reason=str(error))
            return {}
        finally:
            self._lock.release()

    def locate(self, position: SourcePosition) -> Located:
        """The offset of ``position``, once the relay log contains it."""
        with self._log.one_generation() as relay_id:
            return Located(relay_id, self._log.locate(position, _LOCATE_SECONDS, self._stop))

    def admits(self, number: int, high: Located) -> bool:
        """Whether rows of a table that were read at ``high`` have the structure with which it is copied, and contain no
        effect of a statement that the stream has yet to handle. Raises what ``check_end`` raises."""
        with self._lock:
            statement = self._search().get(number)
            if self._relay_id != high.relay_id:
                return False  # the caller locates it again
            self._check_end(high.offset)
            return statement is None or statement.group_start >= high.offset

    def _search(self) -> Mapping[int, Statement]:
        if self._relay_id != self._log.relay_id:
            self._restart()
        head = self._log.head().offset
        if self._begin and head > self._searched:
            for statement in self._log.statements_from(self._searched):
                if statement.group_start >= head:
                    break
                for number in self._interrupted_by(statement):
                    if statement.group_start >= self._begin.get(number, head):
                        self._found.setdefault(number, statement)
            self._searched = head
        return self._found

    def _restart(self) -> None:
        """Begin with another relay log, in which all offsets are others."""
        ends = GroupEnds()
        places = sorted(set(self._valid_from.values()), key=SourcePosition.file_order)
        with self._log.one_generation() as relay_id:
            offsets = {place: self._log.locate(place, _LOCATE_SECONDS, self._stop, ends=ends) for place in places}
        self._begin = {number: offsets[position] for number, position in self._valid_from.items()}
        self._found = {}
        self._searched = min(self._begin.values(), default=RelayOffset(0, 0))
        self._relay_id = relay_id
