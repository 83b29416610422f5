"""Begins the start of Spark's driver: its settings, its environment and its JVM. The runner completes it.

This module imports only modules that a worker has imported when its configuration is read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.tls.process import of_process
from shardmerge.worker.core.spark.jvm import BegunJvm, Java, begin_jvm
from shardmerge.worker.core.spark.scratch_dir import ScratchDir
from shardmerge.worker.core.spark.settings import LOG_LEVEL, effective, ui_address

_LOCAL_IP = "SPARK_LOCAL_IP"
_PYTHON = "PYSPARK_PYTHON"
_PYTHON_KEY = "spark.pyspark.python"
_SAFE_PATH = "PYTHONSAFEPATH"


@dataclass(frozen=True, slots=True)
class BegunDriver:
    """A driver that starts. ``settings``: all of them; ``jvm``: None if Spark's scripts must start it."""

    settings: Mapping[str, str]
    jvm: BegunJvm | None


def begin_driver(
    settings: Mapping[str, str],
    scratch: ScratchDir,
    advertised: str = "",
    options: Callable[[Java], Sequence[str]] = lambda _: (),
    in_child: Callable[[], object] = lambda: None,
) -> BegunDriver:
    """Begin with the user's ``settings``. ``scratch``: for the JVM's files; ``advertised``: the worker's address
    for executors; ``options`` and ``in_child``: see :func:`begin_jvm`.

    Raises SPARK_START_FAILED, and what :func:`effective` and :func:`ui_address` raise.
    """
    merged = effective(settings, scratch.path, advertised, scratch.sockets)
    # By default Spark's Python workers use `python3` from PATH, but they need this environment.
    os.environ.setdefault(_PYTHON, sys.executable)
    if own := merged.get(_PYTHON_KEY):
        os.environ[_PYTHON] = own  # Spark's own commands read the setting; PySpark reads only the variable
    # Python would look for modules in the working directory first. Other users may write there: it can be /tmp.
    os.environ[_SAFE_PATH] = "1"
    os.environ[_LOCAL_IP] = ui_address(settings, os.environ.get(_LOCAL_IP, ""), only_tls=of_process() is not None)
    try:
        jvm = begin_jvm(merged, scratch.path, options, in_child)
    except (OSError, ValueError) as error:
        raise errors.worker.SPARK_START_FAILED(reason=error) from error
    if jvm is not None and LOG_LEVEL not in settings:
        merged = {key: value for key, value in merged.items() if key != LOG_LEVEL}  # its JVM logs errors only
    return BegunDriver(merged, jvm)
