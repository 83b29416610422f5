"""What a subtask may still read of its source's relay log: purge never removes it (I7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from worker.position import RelayOffset


@dataclass(frozen=True, slots=True)
class NeedsNothing:
    """Finished, or not begun."""


@dataclass(frozen=True, slots=True)
class NeedUnknown:
    """It cannot say yet: everything counts as needed."""


@dataclass(frozen=True, slots=True)
class NeedsFrom:
    """Everything from ``offset`` on."""

    offset: RelayOffset


Need = NeedsNothing | NeedUnknown | NeedsFrom


def combined(needs: Iterable[Need]) -> Need:
    """What several subtasks need together."""
    lowest: RelayOffset | None = None
    for need in needs:
        match need:
            case NeedUnknown():
                return need
            case NeedsFrom(offset=offset):
                lowest = offset if lowest is None else min(lowest, offset)
            case NeedsNothing():
                pass
    return NeedsNothing() if lowest is None else NeedsFrom(lowest)
