"""A start that a signal ends: the processes that it has begun are ended, so that nothing waits for them.

Spark's start waits for a JVM, and that for a cluster: in calls that know no stop. It runs beside the main thread, which
so hears of signals at once (and keeps its own handlers: Spark would take SIGINT for itself there). Without its JVM
every such call fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psutil

from proto.log import get_logger

T = TypeVar("T")

log = get_logger()

_LOOK_SECONDS = 0.05
_END_SECONDS = 10.0
"""A killed process ends at once, unless the machine is out of breath."""


def unless_stopped(begin: Callable[[], T], stop: threading.Event, seconds: float) -> T | None:
    """What ``begin`` gives, and raises; None when ``stop`` is set before it has ended: then all processes that this one
    has started are ended, and ``begin``, which runs in another thread, has ``seconds`` to notice."""
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
        thread.join(_LOOK_SECONDS)
    if stop.is_set():
        log.info("stopped while starting: what was begun is ended", seconds=seconds)
    deadline = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < deadline:
        _kill_children()  # again and again: it may be about to start one
        thread.join(_LOOK_SECONDS)
    if stop.is_set():
        end_children()
        return None
    if failure:
        raise failure[0]
    return result[0]


def end_children() -> None:
    """End whatever this process has started and wait until it has ended: what it writes to may be removed next."""
    deadline = time.monotonic() + _END_SECONDS
    while living := _kill_children():
        if time.monotonic() > deadline:
            log.warning("processes that this one has started do not end", processes=[child.pid for child in living])
            return
        time.sleep(_LOOK_SECONDS)


def _kill_children() -> list[psutil.Process]:
    """Those that lived. Whoever has started one asks for its end; another who asked would take the answer away."""
    # Suspended first: a process that goes on starting others is not killed between two of them.
    for child in _children():
        with suppress(psutil.Error):
            child.suspend()
    found = _children()
    for child in found:
        with suppress(psutil.Error):
            child.kill()
    return found


def _children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if _lives(child)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
