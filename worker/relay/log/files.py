"""Files of a relay log: their names, durable writes, the last segment, and the errors of a failing disk."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.files.durable_file import private_descriptor, sync_directory

MAGIC = b"\xfebin"
"""First bytes of a binlog file and of a segment (MySQL Internals, "Binary Log")."""

FIRST_BYTE = len(MAGIC)
"""The byte of a segment's first event, its format description."""

_NAME = re.compile(r"(\d{10})\.(relay|index|statements)")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_GONE = frozenset({errno.ENOENT, errno.ESTALE})
_PROBE_BYTES = 1 << 20


def relay_path(directory: Path, number: int) -> Path:
    return directory / f"{number:010d}.relay"


def index_path(directory: Path, number: int) -> Path:
    return directory / f"{number:010d}.index"


def statements_path(directory: Path, number: int) -> Path:
    return directory / f"{number:010d}.statements"


def segment_numbers(directory: Path) -> list[int]:
    """Numbers of all segments that have any file, ascending."""
    found = (_NAME.fullmatch(path.name) for path in directory.iterdir())
    return sorted({int(match.group(1)) for match in found if match})


def remove_segment(directory: Path, number: int) -> None:
    """Remove the events first: an interrupted removal leaves an index without events."""
    for path in (relay_path, index_path, statements_path):
        path(directory, number).unlink(missing_ok=True)


def disk_error(error: OSError, source: str, path: Path) -> ShardmergeError:
    """The coded error for a failed write. A full disk is temporary; a log that is gone can be fetched again."""
    if error.errno in _FULL:
        return errors.relay.DISK_FULL(source=source, directory=path.parent)
    if error.errno in _GONE:
        return removed(source, path)
    return errors.relay.DISK_FAILED(
        source=source, path=path, reason=error.strerror or type(error).__name__, errno=error.errno
    )


def removed(source: str, path: Path) -> ShardmergeError:
    """The error for a file of the log that another program has removed or replaced."""
    return errors.relay.RELAY_REMOVED(source=source, path=path, directory=path.parent)


def write_at(fd: int, data: bytes, at: int) -> None:
    """Write all of ``data`` at byte ``at``; raises OSError, after which any part of it may be written."""
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, at)
        view = view[done:]
        at += done


def has_space(directory: Path) -> bool:
    """Whether a MiB can be written. It writes a MiB to find out, because quotas and reserved blocks count too."""
    probe = directory / "space.probe"
    try:
        with os.fdopen(private_descriptor(probe, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in _FULL:
            return False
        raise
    finally:
        probe.unlink(missing_ok=True)
    return True


def free_bytes(directory: Path) -> int:
    """Bytes that this process may still write there."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


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
