"""SIGTERM and SIGINT of a daemon, handled outside the main thread.

A Python signal handler runs in the main thread between two bytecodes of whatever that thread does. When the main thread
holds the lock of a ``threading.Event`` at this moment, for example because it is about to wait for it, a handler that
sets the event waits for the lock for ever. When another thread receives the signal, the handler does not run before the
main thread's wait ends. Both are avoided here: the C handler writes the number of the signal into a pipe
(``signal.set_wakeup_fd``), and a thread reads it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def call_on_termination(end: Callable[[], None]) -> None:
    """At the first SIGTERM or SIGINT, call ``end`` in a thread of its own; ``end`` may take locks. A second one ends
    the process at once with exit code 128 + its number. Call it once, in the main thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, _do_nothing)
    threading.Thread(target=_read, args=(reading, end), name="termination", daemon=True).start()


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Without a handler of its own, a signal would end the process."""


def _read(pipe: int, end: Callable[[], None]) -> None:
    is_first = True
    while True:
        for number in os.read(pipe, 64):
            if number not in _SIGNALS:
                continue
            if not is_first:
                os._exit(128 + number)
            is_first = False
            threading.Thread(target=end, name="ending", daemon=True).start()
