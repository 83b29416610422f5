"""The relay log's files, read by who stands on the worker's machine: a lane takes its events from there.

Through the stream each byte would be copied six times, in two processes, once per lane: that takes as much processor
time as decoding.
"""

from __future__ import annotations

import os
from pathlib import Path

from proto.errors import ShardmergeError
from worker.position import RelayOffset
from worker.relay import generation as generations
from worker.relay.files import relay_path


class LocalLog:
    """Used by one thread. What it is asked for was published, and stays until every checkpoint lies behind it (I7)."""

    def __init__(self, directory: Path, relay_id: str, source: str) -> None:
        self._directory = directory
        self._relay_id = relay_id
        self._source = source
        self._segment = 0  # 0: no file is open
        self._file = -1

    def is_at_hand(self) -> bool:
        """Whether that relay log's files are here: elsewhere on a cluster there is no such folder, or another log."""
        try:
            found = generations.load(self._directory, self._source)
        except (OSError, ShardmergeError):
            return False
        return found is not None and found.relay_id == self._relay_id

    def read(self, start: RelayOffset, end: RelayOffset) -> bytes:
        """The bytes between two places of one segment. Raises OSError; EOFError when they are no longer there."""
        if start.segment != self._segment:
            self._open(start.segment)
        size = end.byte - start.byte
        data = os.pread(self._file, size, start.byte)
        if len(data) != size:
            raise EOFError(f"segment {start.segment} is shorter than {end.byte} bytes")
        return data

    def close(self) -> None:
        if self._segment:
            os.close(self._file)
            self._segment = 0

    def _open(self, segment: int) -> None:
        self.close()
        file = os.open(relay_path(self._directory, segment), os.O_RDONLY)
        # A file opened before this look is of this log: another one is named first, then written.
        if not self.is_at_hand():
            os.close(file)
            raise EOFError("the relay log began anew")
        self._segment, self._file = segment, file
