"""The contract of a process unit: snapshot and replicate keep the same promises.

A unit object serves one run. Its owner (worker/subtask.py) makes it, calls :meth:`ProcessUnit.run`
once from one thread, may call :meth:`ProcessUnit.status` at any time from any thread, and makes a new
one with a newer epoch for the next run. Promises:

* ``run`` returns exactly one outcome and raises nothing; what it had begun is undone or finished.
* after ``stop`` is set, ``run`` returns within the drain budget; what was committed stays committed.
* nothing is committed under an epoch that is not the newest (I3).
* ``status`` never blocks on a server.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Protocol

from proto import worker_pb2 as pb
from proto.errors import ShardmergeError


class StopSignal:
    """Set once; everything that waits inside a unit waits on it too.

    A :meth:`child` is set with its parent, but can be set alone: a unit ends its own Spark
    job without ending the subtask.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._children: weakref.WeakSet[StopSignal] = weakref.WeakSet()
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
        for signal in children:
            signal.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep up to ``seconds``; True as soon as the signal is set."""
        return self._event.wait(seconds)


@dataclass(frozen=True, slots=True)
class Finished:
    """The unit has done all there is to do: the next unit may start."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The stop signal was obeyed."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot go on. ``error.spec.retryable`` says whether trying again by itself makes sense."""

    error: ShardmergeError


Outcome = Finished | Stopped | Failed


class ProcessUnit(Protocol):
    """See the module's promises; tests/integration/test_unit_contract.py holds every unit to them."""

    def run(self, stop: StopSignal) -> Outcome:
        """Do the work; return its one outcome."""
        ...

    def status(self) -> pb.LoadStatus | pb.SyncStatus:
        """Progress now."""
        ...

    def doing(self) -> str:
        """What it waits for, one phrase; "" while it is at work."""
        ...
