"""The files of the segment that the relay log is written to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shardmerge.proto.files.durable_file import private_descriptor, sync_directory
from shardmerge.worker.relay.log.files import MAGIC, index_path, relay_path, statements_path, write_at


@dataclass(slots=True)
class OpenSegment:
    """The segment's three files, and the valid bytes of each. All methods raise OSError."""

    number: int
    events: int
    index: int
    statements: int
    written: int
    index_bytes: int
    statements_bytes: int

    @staticmethod
    def reopen(directory: Path, number: int) -> OpenSegment:
        """Open the files of a segment after recovery; the caller sets ``written``."""
        made = OpenSegment(
            number,
            os.open(relay_path(directory, number), os.O_WRONLY),
            os.open(index_path(directory, number), os.O_WRONLY),
            os.open(statements_path(directory, number), os.O_WRONLY),
            0,
            0,
            0,
        )
        made.index_bytes = os.fstat(made.index).st_size
        made.statements_bytes = os.fstat(made.statements).st_size
        return made

    @staticmethod
    def create(directory: Path, number: int, begin: bytes, description: bytes) -> OpenSegment:
        """Create a segment whose index begins with record ``begin``, which is synced before its first event."""
        fds: list[int] = []
        data = MAGIC + description
        try:
            for path in (relay_path, index_path, statements_path):
                fds.append(private_descriptor(path(directory, number), os.O_WRONLY | os.O_TRUNC))
            write_at(fds[1], begin, 0)
            os.fsync(fds[1])
            write_at(fds[0], data, 0)
            sync_directory(directory)
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        return OpenSegment(number, fds[0], fds[1], fds[2], len(data), len(begin), 0)

    def cut(self, written: int) -> None:
        """Truncate the files to the published bytes."""
        self.written = written
        os.ftruncate(self.events, self.written)
        os.ftruncate(self.index, self.index_bytes)
        os.ftruncate(self.statements, self.statements_bytes)

    def close(self) -> None:
        for fd in (self.events, self.index, self.statements):
            os.close(fd)
