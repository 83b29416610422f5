"""The parent of Spark's Python processes (``spark.python.daemon.module``), which lets a lane start without delay.

Spark starts one such process per executor and forks a child for every task. With Spark's own daemon each child
imports everything by itself, and pyspark from a zip archive that it compiles again: a second of CPU time per lane and
chunk reader (measured, pyspark 4.3). Here the parent imports it all once, from files with compiled code.

A process that forks must have one thread. Environment variables keep OpenBLAS and Arrow's allocator from starting
threads when they are imported. If there is another thread nevertheless, the parent restarts and leaves the imports to
its children.

Its socket has no authentication, so that it must be in a private folder.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shardmerge.worker.core.spark.scratch_dir import fits_sockets

_SOCKETS = "PYTHON_WORKER_FACTORY_SOCK_DIR"
_QUIET = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_ONLY_FORK = "SHARDMERGE_DAEMON_ONLY_FORKS"
_MODULE = "shardmerge.worker.core.spark.python_daemon"
_MODULES = (
    "pyspark.worker",
    "shardmerge.worker.replicate.lane.lane",
    "shardmerge.worker.snapshot.reader.chunk_reader",
    "shardmerge.worker.verify.compare.task",
    "shardmerge.worker.binlog.decoder_probe",
)


def without_archives(path: list[str]) -> list[str]:
    """``path`` without Spark's zip archives, where pyspark is installed besides; else as it is."""
    kept = [entry for entry in path if not entry.endswith(".zip")]
    before = list(sys.path)
    sys.path[:] = kept
    try:
        found = importlib.util.find_spec("pyspark") is not None and importlib.util.find_spec("py4j") is not None
    finally:
        sys.path[:] = before
    return kept if found else path


@contextmanager
def private_sockets() -> Generator[None]:
    """Let PySpark's daemon make its socket in a private folder during the block. Within a worker Spark names one.

    On an executor elsewhere Spark names the folder for temporary files: it may be open to all users, or have too long a
    path (YARN). There it is a new folder in the working directory, which the cluster removes with the executor's files.
    Its path is relative: the JVM has the same working directory, and connects to the path that it gets from here.
    """
    if _is_private(Path(os.environ[_SOCKETS])):
        yield
        return
    place = os.curdir if os.access(os.curdir, os.W_OK) else None
    made = tempfile.mkdtemp(prefix=".sockets-", dir=place)  # mode 0700
    os.environ[_SOCKETS] = os.path.relpath(made) if place else made
    try:
        yield
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _is_private(folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077 and fits_sockets(folder)


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0  # not Linux: unknown


def quiet_at_end(serve: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """``serve`` runs one task of a child; it returns the exit code. If the JVM ends first, nothing reads its answer:
    a traceback in the log of a worker that ends would look like a failure."""

    def serve_quietly(connection: socket.socket, authenticated: bool) -> int:
        try:
            return serve(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return serve_quietly


def main() -> None:
    """Import, then serve Spark's requests for children until Spark ends this process."""
    if not os.environ.get(_ONLY_FORK):
        os.environ.update(_QUIET)
        sys.path[:] = without_archives(sys.path)
        for name in _MODULES:
            importlib.import_module(name)
        if _threads() != 1:
            os.environ[_ONLY_FORK] = "1"
            os.execv(sys.executable, [sys.executable, "-m", _MODULE, *sys.argv[1:]])  # noqa: S606
        # Exclude the present objects from garbage collection: in a child it would write to, and so copy, their pages.
        gc.collect()
        gc.freeze()
    daemon: Any = importlib.import_module("pyspark.daemon")
    daemon.worker = quiet_at_end(daemon.worker)
    with private_sockets():
        daemon.manager()


if __name__ == "__main__":
    main()
