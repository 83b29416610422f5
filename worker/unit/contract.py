"""The contract of a process unit, which snapshot and replicate both keep.

A unit object serves one run. Its owner (worker/daemon/subtask/subtask.py) creates it, calls :meth:`ProcessUnit.run`
once from one thread, may call :meth:`ProcessUnit.status` at any time from any thread, and creates a new
one with a newer epoch for the next run. Promises:

* ``run`` returns exactly one outcome and raises nothing; work that it began is undone or finished.
* after ``stop`` is set, ``run`` returns within the drain budget; commits stay.
* nothing is committed under an epoch that is not the newest (I3).
* ``status`` never blocks on a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.stop_signal import StopSignal


@dataclass(frozen=True, slots=True)
class Finished:
    """The unit has finished its work: the next unit may start."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The unit has ended because of the stop signal."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The unit cannot continue. ``error.spec.retryable``: whether an automatic retry makes sense."""

    error: ShardmergeError


Outcome = Finished | Stopped | Failed


class ProcessUnit(Protocol):
    """See the module's promises; tests/integration/test_unit_contract.py tests them for every unit."""

    def run(self, stop: StopSignal) -> Outcome:
        """Run the unit; return its one outcome."""
        ...

    def status(self) -> pb.LoadStatus | pb.SyncStatus:
        """The current progress."""
        ...

    def activity(self) -> str:
        """What the unit waits for, one phrase; "" while it works."""
        ...


class Epochs(Protocol):
    """Where fencing tokens come from (etcd)."""

    def acquire(self, task: str, source: str, above: int, target: str = "") -> int:
        """A number higher than ``above`` and than any before for this subtask. ``above``: the epoch that the target has
        recorded. ``target``: the server that has the records; "": the one that was named before. Raises NOT_BOUND,
        LEASE_LOST, ETCD_UNAVAILABLE."""
        ...

    def rise_above(self, epoch: int) -> None:
        """Make all epochs from now on higher than ``epoch``. Raises LEASE_LOST, ETCD_UNAVAILABLE."""
        ...

    def target_of(self, task: str, source: str) -> str:
        """The server that was named last; "" for none. Raises ETCD_UNAVAILABLE."""
        ...
