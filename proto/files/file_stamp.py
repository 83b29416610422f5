"""Detects whether a file is still the one that was read."""

from __future__ import annotations

import os

Stamp = tuple[int, int, int]
"""Changes when the file is written or replaced: its modification time (ns), inode and size."""


def stamp_of(path: str) -> Stamp | None:
    """The file's stamp; None if it does not exist or cannot be inspected."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: no path can be so, for example with a NUL character
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
