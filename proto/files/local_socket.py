"""A Unix socket that a daemon listens on for its own user: the folder's mode decides who may connect.

A lock file next to the socket is locked as long as the daemon runs, so that two daemons never share a path, and the
socket of a killed one is recognised as stale.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from shardmerge.proto import errors
from shardmerge.proto.files.durable_file import PRIVATE_FILE, private_descriptor, private_folder

SCHEME = "unix:"
"""The prefix of a socket's address, as in gRPC (doc/naming.md)."""
_LONGEST_BYTES = 107
"""The longest path (unix(7), sun_path)."""


def default_path(environment: Mapping[str, str], name: str) -> str:
    """``$XDG_RUNTIME_DIR/shardmerge/<name>.sock`` (XDG Base Directory Specification); "" without the variable. Pure."""
    folder = environment.get("XDG_RUNTIME_DIR", "")
    return str(Path(folder) / "shardmerge" / f"{name}.sock") if folder.startswith("/") else ""


class LocalSocket:
    """Owner of ``path`` until :meth:`close`: free to be bound after it was made, private after :meth:`restrict`."""

    def __init__(self, path: str) -> None:
        """Raises ``errors.master.SOCKET_UNUSABLE``; a socket of another process stays as it is."""
        self.path = str(Path(path).absolute())
        if len(os.fsencode(self.path)) > _LONGEST_BYTES:
            raise self._unusable(f"the path has more than {_LONGEST_BYTES} bytes")
        try:
            private_folder(Path(self.path).parent)
            self._check_folder()
            self._lock = private_descriptor(Path(f"{self.path}.lock"), os.O_RDWR)
        except OSError as error:
            raise self._unusable(error.strerror or "input/output error") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._free()
        except OSError:
            os.close(self._lock)
            raise self._unusable("another process listens there") from None
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def address(self) -> str:
        """The address for gRPC and for dmctl's --master-addr."""
        return SCHEME + self.path

    def restrict(self) -> None:
        """Give the socket its mode, once it is bound. Raises OSError."""
        Path(self.path).chmod(PRIVATE_FILE)

    def close(self) -> None:
        """Remove the socket."""
        Path(self.path).unlink(missing_ok=True)
        os.close(self._lock)

    def _check_folder(self) -> None:
        found = Path(self.path).parent.stat()
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise self._unusable("other users may access its folder, or own it")

    def _free(self) -> None:
        """Remove the socket of a dead process. Raises OSError, or SOCKET_UNUSABLE for anything else at the path."""
        place = Path(self.path)
        if not os.path.lexists(place):
            return
        if not stat.S_ISSOCK(place.lstat().st_mode):
            raise self._unusable("the path exists and is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                place.unlink()
                return
        raise self._unusable("another process listens there")

    def _unusable(self, reason: str) -> errors.ShardmergeError:
        return errors.master.SOCKET_UNUSABLE(path=self.path, reason=reason)
