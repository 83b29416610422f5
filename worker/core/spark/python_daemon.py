"""The parent of Spark's Python processes (``spark.python.daemon.module``), which lets a lane start without delay.

Spark starts one such process per executor and forks a child for every task. With Spark's own daemon each child
imports everything by itself, and pyspark from a zip archive that it compiles again: a second of CPU time per lane and
chunk reader (measured, pyspark 4.3). Here the parent imports it all once, from files with compiled code.

A process that forks must have one thread. Environment variables keep OpenBLAS and Arrow's allocator from starting
threads when they are imported. If there is another thread nevertheless, the parent restarts and leaves the imports to
its children.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys

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


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0  # not Linux: unknown


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
    daemon = importlib.import_module("pyspark.daemon")
    daemon.manager()


if __name__ == "__main__":
    main()
