"""Whether a file is still the one that was read."""

from __future__ import annotations

import os

Stamp = tuple[int, int, int]
"""Another one when the file was written or replaced: when it was written (ns), its inode, its size."""


def stamp_of(path: str) -> Stamp | None:
    """None: there is none, or it cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
