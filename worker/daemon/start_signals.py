"""A signal can stop the start of a worker: the processes that the start has created are killed.

Spark's start waits for a JVM, and the JVM waits for a cluster. These calls cannot be interrupted, but they fail as soon
as the JVM is dead. Therefore the start runs in a second thread. The main thread handles signals at once and keeps its
own handlers; in the main thread Spark would install a handler for SIGINT.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psutil

from shardmerge.proto.log import get_logger

T = TypeVar("T")

log = get_logger()

_POLL_SECONDS = 0.05
_END_SECONDS = 10.0
"""A killed process ends at once, unless the machine is overloaded."""


def unless_stopped(begin: Callable[[], T], stop: threading.Event, seconds: float) -> T | None:
    """Run ``begin`` in another thread and return its result, or raise its error. None when ``stop`` is set before
    ``begin`` has ended: then all child processes are killed, and ``begin`` has ``seconds`` to return."""
    if stop.is_set():
        return None
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(begin())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="start", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set():
        thread.join(_POLL_SECONDS)
    if stop.is_set():
        log.info("stopped while starting: child processes are killed", seconds=seconds)
    deadline = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < deadline:
        _kill_children()  # repeatedly: ``begin`` may start another process
        thread.join(_POLL_SECONDS)
    if stop.is_set():
        end_children()
        return None
    if failure:
        raise failure[0]
    return result[0]


def end_children() -> None:
    """Kill all child processes and wait until they have ended, so that the caller may remove their files."""
    deadline = time.monotonic() + _END_SECONDS
    while running := _kill_children():
        if time.monotonic() > deadline:
            log.warning("killed child processes have not ended", processes=[child.pid for child in running])
            return
        time.sleep(_POLL_SECONDS)


def _kill_children() -> list[psutil.Process]:
    """Kill all children that still run, and return them. Only the code that started a child may wait for it: a second
    waiter would take its exit status away."""
    # All are suspended first, so that none of them can start another process meanwhile.
    for child in _children():
        with suppress(psutil.Error):
            child.suspend()
    found = _children()
    for child in found:
        with suppress(psutil.Error):
            child.kill()
    return found


def _children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if _is_running(child)]


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
