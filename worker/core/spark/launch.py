"""Connects PySpark to the JVM of Spark's driver, which is started without its settings on the command line.

PySpark would write every setting on the JVM's command line, which every user of the machine can read (proc(5),
/proc/<pid>/cmdline). A JVM that Spark's scripts start reads them from a file that only this user can read. The file is
deleted afterwards. One that worker/core/spark/jvm.py has started gets them from PySpark.
"""

from __future__ import annotations

import os
import shlex
import socket
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway  # pyright: ignore[reportUnknownVariableType]

from shardmerge.proto import errors
from shardmerge.proto.config.daemon.spark import master_addresses
from shardmerge.worker.core.spark.failures import JVM_ERRORS
from shardmerge.worker.core.spark.jvm import BegunJvm
from shardmerge.worker.core.spark.settings import properties

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_NO_ARGUMENTS = "pyspark-shell"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_CONNECT_SECONDS = 40.0
_LOOK_SECONDS = 1.0
_WAITING = "StandaloneSchedulerBackend.waitForRegistration"


def start_jvm(settings: Mapping[str, str], folder: Path | None) -> None:
    """Start this process's JVM with ``settings``; a JVM that runs already is not changed.

    ``folder``: for the file with the settings; None: the folder for temporary files. Raises what PySpark raises.
    """
    with _file(settings, folder) as path, _arguments(path):
        SparkContext._ensure_initialized()


def attach(jvm: BegunJvm) -> None:
    """Make ``jvm`` this process's JVM. Raises SPARK_START_FAILED, and what PySpark raises."""
    found = jvm.connection()
    if found is None:
        reason = f"the JVM has ended with code {jvm.process.wait()} before it was ready; its output has the reason"
        raise errors.worker.SPARK_START_FAILED(reason=reason)
    # PySpark reads the address of a running JVM only from its environment.
    os.environ[_PORT], os.environ[_SECRET] = str(found[0]), found[1]
    try:
        gateway: Any = launch_gateway()  # pyright: ignore[reportUnknownVariableType]
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    gateway.proc = jvm.process
    context: Any = SparkContext
    context._ensure_initialized(gateway=gateway)


@contextmanager
def connecting(master: str) -> Generator[None]:
    """Kill the JVM if the block waits too long for the master of a standalone cluster: Spark's driver does so for more
    than a minute, and cannot be interrupted. The block's own error then becomes SPARK_START_FAILED."""
    if not master_addresses(master):
        yield
        return
    ended, is_late = threading.Event(), threading.Event()

    def watch() -> None:
        wait = _CONNECT_SECONDS
        while not ended.wait(wait):
            wait = _LOOK_SECONDS
            if _waits_for_master():
                is_late.set()
                SparkContext._gateway.proc.kill()
                return

    threading.Thread(target=watch, name="spark-connect", daemon=True).start()
    try:
        yield
    except Exception as error:
        if not is_late.is_set():
            raise
        reason = f"{master} has not accepted the worker within {_CONNECT_SECONDS:g} s: {_refusal(master)}"
        raise errors.worker.SPARK_START_FAILED(reason=reason) from error
    finally:
        ended.set()


def _waits_for_master() -> bool:
    """Whether a thread of the JVM waits until the master of a standalone cluster accepts the driver. On a busy machine
    the start may take as long, and is not to be ended."""
    try:
        threads = SparkContext._jvm.org.apache.spark.util.Utils.getThreadDump()
        return any(_WAITING in str(thread) for thread in threads)
    except JVM_ERRORS:  # the JVM has ended
        return False


def _refusal(master: str) -> str:
    """Why no master of the cluster has accepted the worker, as far as a connection shows it."""
    reason = "look at the log of Spark's master or of the cluster's manager"
    for address in master_addresses(master):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
        except (OSError, ValueError) as error:
            reason = f"{address} cannot be connected to: {error}"
        else:
            return (
                f"{address} accepts connections; check that it is a Spark master of the worker's version of Spark and "
                "has the worker's spark.authenticate.secret"
            )
    return reason


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
