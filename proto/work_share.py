"""Limits the share of its time that a loop works when there is always something to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class WorkShare:
    """For one loop. ``share``: of the time, that it may work; ``burst``: seconds of work that need no pause, if it has
    rested before; ``longest``: pause in seconds.

    A loop that reads all records after each change would otherwise take a processor while a thousand changes come one
    after the other. Single changes are handled at once.
    """

    share: float
    burst: float
    longest: float
    _debt: float = 0.0
    _ended: float = 0.0

    def pause(self, began: float, ended: float) -> float:
        """The loop has worked from ``began`` to ``ended`` (monotonic seconds): how long it has to rest now."""
        rested = max(0.0, began - self._ended)
        self._debt = max(0.0, self._debt - rested * self.share) + (ended - began) * (1 - self.share)
        self._ended = ended
        over = self._debt - self.burst
        return min(self.longest, over / self.share) if over > 0 else 0.0
