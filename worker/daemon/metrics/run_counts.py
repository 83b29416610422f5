"""Counts how the runs of a subtask end, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardmerge.proto import errors
from shardmerge.proto.errors import Scope, ShardmergeError
from shardmerge.worker.unit.contract import Failed, Finished, Outcome

DUMP, LOAD, SYNC = "dump", "load", "sync"
"""DM's units. The snapshot unit here is both of the first two: an error of the source counts for the dump."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """``outcomes``: runs by their end; ``failures``: by the code of the error; ``exits``: by DM's unit and whether the
    worker tries again by itself."""

    outcomes: Mapping[str, int] = field(default_factory=dict[str, int])
    failures: Mapping[int, int] = field(default_factory=dict[int, int])
    exits: Mapping[tuple[str, bool], int] = field(default_factory=dict[tuple[str, bool], int])
    fenced: int = 0


NO_RUNS = RunFigures()


class RunCounts:
    """Not thread-safe: the subtask calls it under its lock."""

    def __init__(self) -> None:
        self._outcomes: Counter[str] = Counter()
        self._failures: Counter[int] = Counter()
        self._exits: Counter[tuple[str, bool]] = Counter()
        self._fenced = 0

    def ended(self, outcome: Outcome, *, in_snapshot: bool) -> None:
        """A run is over; ``in_snapshot``: its last unit copied the history."""
        if not isinstance(outcome, Failed):
            self._outcomes["finished" if isinstance(outcome, Finished) else "stopped"] += 1
            return
        error = outcome.error
        self._outcomes["failed"] += 1
        self._failures[error.spec.code] += 1
        self._fenced += error.spec is errors.replicate.FENCED
        self._exits[_unit(error, in_snapshot), error.spec.retryable] += 1

    def figures(self) -> RunFigures:
        return RunFigures(dict(self._outcomes), dict(self._failures), dict(self._exits), self._fenced)


def _unit(error: ShardmergeError, in_snapshot: bool) -> str:
    if not in_snapshot:
        return SYNC
    return DUMP if error.spec.scope is Scope.SOURCE else LOAD
