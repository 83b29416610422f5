"""The JVM of Spark's driver is started without its settings on the command line.

PySpark would write every setting on the JVM's command line, which every user of the machine can read (proc(5),
/proc/<pid>/cmdline). Here the JVM reads them from a file that only this user can read. The file is deleted afterwards.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext

from shardmerge.worker.core.spark.settings import properties

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_NO_ARGUMENTS = "pyspark-shell"


def start_jvm(settings: Mapping[str, str], folder: Path | None) -> None:
    """Start this process's JVM with ``settings``; a JVM that runs already is not changed.

    ``folder``: for the file with the settings; None: the folder for temporary files. Raises what PySpark raises.
    """
    with _file(settings, folder) as path, _arguments(path):
        SparkContext._ensure_initialized()


@contextmanager
def _file(settings: Mapping[str, str], folder: Path | None) -> Generator[str]:
    # mkstemp: mode 0600
    descriptor, path = tempfile.mkstemp(prefix="spark-", suffix=".conf", dir=folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(properties(settings))
        yield path
    finally:
        os.unlink(path)


@contextmanager
def _arguments(path: str) -> Generator[None]:
    """Set the arguments of spark-submit for the block. Arguments from the environment come last and take precedence."""
    before = os.environ.get(_ARGUMENTS)
    file = f"--load-spark-defaults --properties-file {shlex.quote(path)}"
    os.environ[_ARGUMENTS] = f"{file} {before or _NO_ARGUMENTS}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before
