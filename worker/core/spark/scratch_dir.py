"""A folder of the worker for the files that Spark writes: a JVM that is killed does not remove them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import IO

from shardmerge.proto.files.durable_file import private_descriptor, tighten


class ScratchDir:
    """Empty when it is made, even if an earlier run left files there; deleted by :meth:`close`.

    ``identity``: of the worker, on this machine. It is not on the relay log's disk: if that is full, Spark must not
    stop. The folder of a running process with the same identity is not touched.
    """

    def __init__(self, identity: str) -> None:
        root = _private(Path(tempfile.gettempdir()) / f"shardmerge-{os.getuid()}")
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._lock = _locked(root / f"{name}.lock") if root is not None else None
        if root is None or self._lock is None:
            self.path = Path(tempfile.mkdtemp(prefix="shardmerge-"))
            return
        self.path = root / name
        shutil.rmtree(self.path, ignore_errors=True)  # a JVM of the earlier run may still be writing while it ends
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.path.chmod(0o700)  # the folder may exist from an earlier run, with another mode

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _private(folder: Path) -> Path | None:
    """``folder``, created if missing; None if another user has created it: all users may write to the parent folder."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return None
        tighten(folder)
    return folder


def _locked(path: Path) -> IO[bytes] | None:
    """The file, locked until it is closed or the process ends; None while another process holds the lock."""
    file = os.fdopen(private_descriptor(path, os.O_WRONLY | os.O_TRUNC), "wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
