"""Which binlog file of a source to begin in for what committed from a moment on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from proto import errors
from proto.errors import ShardmergeError
from worker.binlog.events import EventType, parse_header
from worker.connection import Endpoint
from worker.position import SourcePosition
from worker.relay.commit_time import exact_time
from worker.relay.dump import Dump
from worker.relay.files import FIRST_BYTE
from worker.relay.kinds import GTIDS
from worker.relay.start import FromFile

_NOBODY = 0
"""A server id that is no replica's: such a dump ends no other one."""


@dataclass(frozen=True, slots=True)
class FileTimes:
    """Unix seconds: when a file was begun, and the first commit in it or behind it, None if there is none yet."""

    begun: float
    first_commit: float | None


def file_times(source: str, endpoint: Endpoint, file: str) -> FileTimes:
    """Ask the source for a file's first events. Raises what its dump raises."""
    begun = 0.0
    with closing(Dump.connect(source, endpoint)) as dump:
        dump.begin(FromFile(SourcePosition(file, FIRST_BYTE), seed=False), _NOBODY, str(uuid.uuid4()), wait=False)
        try:
            while True:
                event = dump.event()
                if event is None:
                    dump.receive()
                    continue
                header = parse_header(event)
                if header.type == EventType.FORMAT_DESCRIPTION and not begun:
                    begun = float(header.timestamp)
                elif header.type in GTIDS and not header.is_artificial:
                    exact = 0.0 if header.type == EventType.MARIADB_GTID else exact_time(bytes(event))
                    return FileTimes(begun, exact or float(header.timestamp))
        except ShardmergeError as error:
            if error.spec is not errors.relay.DUMP_ENDED:
                raise
    return FileTimes(begun, None)


def last_before(files: Sequence[str], moment: float, times: Callable[[str], FileTimes]) -> str | None:
    """The last file whose first commit came before ``moment``: what follows ``moment`` begins in it or behind it.

    Else the first file, if it was begun before ``moment``; None if not even that. ``files``: oldest first, at least
    one. Asks for about log2 of them.
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
