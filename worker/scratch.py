"""A folder of the worker's own for what Spark writes while it runs: a JVM that is killed leaves all of it behind."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import IO

from proto.durable import private_descriptor, tighten


class Scratch:
    """Empty when it is made, whatever the same worker left there before; gone after :meth:`close`.

    ``identity``: of the worker, on this machine. Not beside the relay log: a full disk there must not stop Spark.
    A process that has the same identity and lives keeps its own.
    """

    def __init__(self, identity: str) -> None:
        root = _private(Path(tempfile.gettempdir()) / f"shardmerge-{os.getuid()}")
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._lock = _locked(root / f"{name}.lock") if root is not None else None
        if root is None or self._lock is None:
            self.path = Path(tempfile.mkdtemp(prefix="shardmerge-"))
            return
        self.path = root / name
        shutil.rmtree(self.path, ignore_errors=True)  # its JVM may be on its way out and write still
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.path.chmod(0o700)  # the folder may exist from an earlier run, with another mode

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _private(folder: Path) -> Path | None:
    """``folder``, made if need be; None where somebody else was first: it stands in a folder that all may write to."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return None
        tighten(folder)
    return folder


def _locked(path: Path) -> IO[bytes] | None:
    """The file, locked until it is closed or the process ends; None while another process has it."""
    file = os.fdopen(private_descriptor(path, os.O_WRONLY | os.O_TRUNC), "wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
