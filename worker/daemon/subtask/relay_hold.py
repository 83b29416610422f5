"""The part of its source's relay log that a subtask may still read: a purge never removes it (I7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardmerge.worker.core.position import RelayOffset


@dataclass(frozen=True, slots=True)
class HoldNothing:
    """The subtask needs nothing: it is finished, or has not begun."""


@dataclass(frozen=True, slots=True)
class HoldAll:
    """It is not known yet what the subtask needs: everything counts as needed."""


@dataclass(frozen=True, slots=True)
class HoldFrom:
    """The subtask needs everything from ``offset`` on."""

    offset: RelayOffset


RelayHold = HoldNothing | HoldAll | HoldFrom


def lowest_hold(needs: Iterable[RelayHold]) -> RelayHold:
    """The hold of several subtasks together."""
    lowest: RelayOffset | None = None
    for need in needs:
        match need:
            case HoldAll():
                return need
            case HoldFrom(offset=offset):
                lowest = offset if lowest is None else min(lowest, offset)
            case HoldNothing():
                pass
    return HoldNothing() if lowest is None else HoldFrom(lowest)
