"""A folder of the worker for the files that Spark writes: a JVM that is killed does not remove them.

Also the sockets between Spark and Python are in a private folder: they have no authentication (pyspark.daemon, module
pyspark.accumulators). The path of a socket is short (sun_path in unix(7)), and that of the folder for temporary files
may be long: then the sockets are in another folder, below /tmp.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import IO

from shardmerge.proto import errors
from shardmerge.proto.files.durable_file import private_descriptor, tighten

_SHORT_PLACE = Path("/tmp")  # noqa: S108 - the folders in it are private
_SOCKET_NAME_BYTES = len("/.") + 36 + len(".sock")
"""PySpark and Spark's JVM name each socket by a UUID."""
_SOCKET_PATH_BYTES = 107


def fits_sockets(folder: Path) -> bool:
    """Whether the paths of Spark's sockets in this folder are short enough."""
    return len(os.fsencode(folder)) + _SOCKET_NAME_BYTES <= _SOCKET_PATH_BYTES


class ScratchDir:
    """Empty when it is made, even if an earlier run left files there; deleted by :meth:`close`.

    ``identity``: of the worker, on this machine. It is not on the relay log's disk: if that is full, Spark must not
    stop. The folder of a running process with the same identity is not touched. ``parent``: where it is; None: in the
    folder for temporary files. Raises SPARK_START_FAILED if there is no folder for sockets.
    """

    def __init__(self, identity: str, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        root = _private(parent / f"shardmerge-{os.getuid()}")
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._lock = _locked(root / f"{name}.lock") if root is not None else None
        if root is None or self._lock is None:
            self.path = Path(tempfile.mkdtemp(prefix="shardmerge-", dir=parent))
        else:
            self.path = root / name
            shutil.rmtree(self.path, ignore_errors=True)  # a JVM of the earlier run may still be writing while it ends
            self.path.mkdir(mode=0o700, exist_ok=True)
            self.path.chmod(0o700)  # the folder may exist from an earlier run, with another mode
        self._short = None if fits_sockets(self.path) else _short(identity)

    @property
    def sockets(self) -> Path:
        """The folder for the sockets between Spark and Python."""
        return self.path if self._short is None else self._short.path

    def close(self) -> None:
        if self._short is not None:
            self._short.close()
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _short(identity: str) -> ScratchDir:
    try:
        return ScratchDir(identity, _SHORT_PLACE)
    except OSError as error:
        reason = f"the path of the folder for temporary files (TMPDIR) is too long for a socket, and {error}"
        raise errors.worker.SPARK_START_FAILED(reason=reason) from error


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
