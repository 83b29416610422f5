"""Creates files that survive a crash and that only their owner may read. Every file of the program is created here.

A file or folder gets its mode when it is created, whatever the umask is: it never has a wider mode, not even briefly.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def private_folder(folder: Path) -> None:
    """Create ``folder`` and its missing parents, accessible for this user only. An existing one stays as it is. Raises
    OSError."""
    missing = [folder] if not folder.exists() else []
    while missing and not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        each.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def tighten(folder: Path) -> None:
    """Remove other users' access to a folder of this user and the files in it: an earlier version allowed it.

    Files of another user, links and folders within stay as they are. Raises OSError.
    """
    for path, mode in ((folder, PRIVATE_FOLDER), *((path, PRIVATE_FILE) for path in folder.iterdir())):
        with suppress(FileNotFoundError):
            found = path.lstat()
            wanted = stat.S_ISDIR if path == folder else stat.S_ISREG
            if wanted(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) & 0o077:
                path.chmod(mode)


def private_descriptor(path: Path, flags: int) -> int:
    """``os.open`` of a file that is created for this user only; an existing one keeps its mode. Raises OSError."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)


def private_text(path: Path, *, append: bool = False) -> IO[str]:
    """A text file to write, created for this user only. Raises OSError.

    An existing one is emptied and made private; with ``append`` it is continued line by line and keeps its mode, which
    an administrator of the log may have chosen.
    """
    descriptor = private_descriptor(path, os.O_WRONLY | (os.O_APPEND if append else os.O_TRUNC))
    if append:
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace", buffering=1)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid():
        os.fchmod(descriptor, PRIVATE_FILE)
    return os.fdopen(descriptor, "w", encoding="utf-8")


def rewrite(path: str, text: str) -> None:
    """:func:`write_durably` to a person's file: it keeps its mode, and a link to it stays one."""
    file = Path(path).resolve(strict=True)
    write_durably(file, text.encode(), file.stat().st_mode & 0o777)


def write_durably(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Replace a file as a whole: a reader at the same time, or after a crash, finds the old or the new file.

    ``mode``: its permissions. Raises OSError.
    """
    scratch = path.with_name(f"{path.name}.new")
    scratch.unlink(missing_ok=True)
    try:
        # No other user may read it before it has its mode.
        descriptor = private_descriptor(scratch, os.O_WRONLY | os.O_EXCL)
        with os.fdopen(descriptor, "wb") as file:
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
    """Make the names in ``directory`` durable."""
    sync_file(directory)


def sync_file(path: Path) -> None:
    """fsync by name: the bytes may have been written through any handle."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
