"""Files that survive a crash."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def rewrite(path: str, text: str) -> None:
    """:func:`write_durably` to a person's file: it keeps its mode, and a link to it stays one."""
    file = Path(path).resolve(strict=True)
    write_durably(file, text.encode(), file.stat().st_mode & 0o777)


def write_durably(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace a file as a whole: who reads it at the same time, or after a crash, finds the old one or the new one.

    ``mode``: its permissions; None: what the umask leaves. Raises OSError.
    """
    scratch = path.with_name(f"{path.name}.new")
    scratch.unlink(missing_ok=True)
    try:
        # Nobody else may read it before it has its mode.
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        scratch.replace(path)
    except OSError:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make names in ``directory`` durable."""
    sync_file(directory)


def sync_file(path: Path) -> None:
    """fsync by name: it does not matter through which handle the bytes were written."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
