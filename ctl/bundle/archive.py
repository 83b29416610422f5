"""Writes a bundle: a gzipped tar archive that only its owner may read, and that replaces no file."""

from __future__ import annotations

import contextlib
import os
import tarfile
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Self

from shardmerge.proto.files.durable_file import private_descriptor

_FILE_MODE = 0o600


class Archive:
    """Use it with ``with``: the file exists from the start on, so that a path that is taken or not writable is reported
    before anything is collected. It is removed if the block fails. Every method raises OSError."""

    def __init__(self, path: Path, folder: str, now: float) -> None:
        """``folder``: in which all files of the archive are; ``now``: their time, Unix seconds."""
        self._path = path
        self._folder = folder
        self._now = int(now)
        self._file = os.fdopen(private_descriptor(path, os.O_WRONLY | os.O_EXCL), "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def add(self, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(f"{self._folder}/{name}")
        entry.size, entry.mode, entry.mtime = len(content), _FILE_MODE, self._now
        self._tar.addfile(entry, BytesIO(content))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_complete = False
        try:
            if error is None:
                self._tar.close()
                self._file.flush()
                os.fsync(self._file.fileno())
                is_complete = True
        finally:
            if not is_complete:
                self._path.unlink(missing_ok=True)
            # On a full disk closing fails, too: what is left in the buffer cannot be written.
            with contextlib.nullcontext() if is_complete else contextlib.suppress(OSError):
                self._file.close()
