"""A signal that ends everything that waits inside a unit."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager


class StopSignal:
    """Set once; everything that waits inside a unit waits on it too.

    A :meth:`child` is set with its parent, but can be set alone: a unit ends its own Spark
    job without ending the subtask.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._children: weakref.WeakSet[StopSignal] = weakref.WeakSet()
        self._calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def child(self) -> StopSignal:
        signal = StopSignal()
        with self._lock:
            self._children.add(signal)
            if self._event.is_set():
                signal.set()
        return signal

    def set(self) -> None:
        with self._lock:
            self._event.set()
            children = list(self._children)
            calls, self._calls = self._calls, []
        for call in calls:
            call()
        for signal in children:
            signal.set()

    def call_when_set(self, call: Callable[[], None]) -> None:
        """Call ``call`` as soon as the signal is set, from the thread that sets it: for what waits on something else.
        It must neither block nor raise."""
        with self._lock:
            if not self._event.is_set():
                self._calls.append(call)
                return
        call()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep up to ``seconds``; True as soon as the signal is set."""
        return self._event.wait(seconds)


@contextmanager
def running_thread(name: str, run: Callable[[StopSignal], None], stop: StopSignal) -> Generator[None]:
    """Call ``run`` in a thread of its own while the block runs; when the block ends, stop the thread and join it."""
    mine = stop.child()
    thread = threading.Thread(target=run, args=(mine,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        mine.set()
        thread.join()
