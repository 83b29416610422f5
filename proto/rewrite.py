"""A person's file written anew in its place."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def rewrite(path: str, text: str) -> None:
    """In one step: who reads it at the same time, or after a crash, finds the old text or the new one.

    The file keeps its mode, and a link to it stays one. Raises OSError: then nothing has changed.
    """
    file = Path(path).resolve(strict=True)
    made = file.with_name(f"{file.name}.new")
    made.unlink(missing_ok=True)
    try:
        # Nobody else may read it before it has the mode of the file.
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as new:
            os.fchmod(descriptor, file.stat().st_mode & 0o777)
            new.write(text.encode())
            new.flush()
            os.fsync(descriptor)
        made.replace(file)
    except OSError:
        with suppress(OSError):
            made.unlink(missing_ok=True)
        raise
