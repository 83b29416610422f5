"""Reads the relay log's files directly: a lane on the worker's machine reads its events from there.

Through the stream each byte would be copied six times, in two processes, once per lane: that takes as much processor
time as decoding.
"""

from __future__ import annotations

import os
from pathlib import Path

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.log import generation as generations
from shardmerge.worker.relay.log.files import relay_path


class LocalLog:
    """Used by one thread. The requested bytes are published, and are kept until every checkpoint is after them (I7)."""

    def __init__(self, directory: Path, relay_id: str, source: str) -> None:
        self._directory = directory
        self._relay_id = relay_id
        self._source = source
        self._segment = 0  # 0: no file is open
        self._file = -1

    def is_available(self) -> bool:
        """Whether the files of that relay log are here: other machines of a cluster lack the folder, or have another
        log."""
        try:
            found = generations.load(self._directory, self._source)
        except (OSError, ShardmergeError):
            return False
        return found is not None and found.relay_id == self._relay_id

    def read(self, start: RelayOffset, end: RelayOffset) -> bytes:
        """The bytes between two offsets of one segment. Raises OSError; EOFError when they no longer exist."""
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
        # A file that was opened before this check belongs to this log: a new log's relay.json is written before its
        # files.
        if not self.is_available():
            os.close(file)
            raise EOFError("a new relay log has replaced this one")
        self._segment, self._file = segment, file
