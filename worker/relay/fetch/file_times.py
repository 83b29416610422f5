"""Finds the binlog file of a source that contains the first commit at or after a point in time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.commit_time import logged_time
from shardmerge.worker.binlog.event_kinds import GTIDS
from shardmerge.worker.binlog.events import EventHeader, EventType, parse_header
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.dump_connection import Dump
from shardmerge.worker.relay.fetch.dump_start import FromFile, Start
from shardmerge.worker.relay.log.files import FIRST_BYTE

_NO_REPLICA = 0
"""A server id that no replica has: such a dump ends no other one."""


@dataclass(frozen=True, slots=True)
class FileTimes:
    """Unix seconds: when a file was begun, and the first commit in it or after it, None if there is none yet."""

    begun: float
    first_commit: float | None


def file_times(source: str, endpoint: Endpoint, file: str) -> FileTimes:
    """Read a file's first events from the source. Raises what its dump raises."""
    begun = 0.0
    with closing(Dump.connect(source, endpoint)) as dump:
        for header, event in present_events(dump, FromFile(SourcePosition(file, FIRST_BYTE), seed=False)):
            if header.type == EventType.FORMAT_DESCRIPTION and not begun:
                begun = float(header.timestamp)
            elif header.type in GTIDS and not header.is_artificial:
                return FileTimes(begun, logged_time(bytes(event)))
    return FileTimes(begun, None)


def present_events(dump: Dump, start: Start) -> Iterator[tuple[EventHeader, memoryview]]:
    """The events that the source has now from ``start`` on; each is valid until the next one. Ends no other dump.
    Raises what the dump raises, at the latest before the format description if the source cannot send ``start``."""
    dump.begin(start, _NO_REPLICA, str(uuid.uuid4()), wait=False)
    try:
        while True:
            event = dump.event()
            if event is None:
                dump.receive()
            else:
                yield parse_header(event), event
    except ShardmergeError as error:
        if error.spec is not errors.relay.DUMP_ENDED:
            raise


def last_before(files: Sequence[str], moment: float, times: Callable[[str], FileTimes]) -> str | None:
    """The last file whose first commit was before ``moment``: the first commit from ``moment`` on is in it or after it.

    Else the first file, if it was begun before ``moment``; else None. ``files``: oldest first, at least
    one. Calls ``times`` for about log2 of them.
    """
    low, high = 0, len(files)  # files before low begin early enough, those from high on do not
    while low < high:
        middle = (low + high) // 2
        first = times(files[middle]).first_commit
        if first is not None and first < moment:
            low = middle + 1
        else:
            high = middle
    if low:
        return files[low - 1]
    return files[0] if times(files[0]).begun <= moment else None
