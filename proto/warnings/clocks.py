"""Decides whether two clocks differ by more than a time server would let them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto.warnings import kinds
from shardmerge.proto.worker_pb2 import StatusWarning

LIMIT_SECONDS = 1.0
"""Clocks that certainly differ by more are reported: docs/how-to/monitor.md names it."""

_TODO = (
    "Let all machines follow one time server (chrony, ntpd). No row depends on the clocks, and lag figures allow for "
    "the clock of the source; start and stop times are times of the source's clock."
)


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """The clock of ``whose`` is ahead of the one of ``than`` by ``ahead`` seconds, plus or minus ``error``: half of the
    time that the answer took."""

    whose: str
    than: str
    ahead: float
    error: float

    @property
    def is_large(self) -> bool:
        """Whether it certainly is above the limit."""
        return abs(self.ahead) - self.error > LIMIT_SECONDS

    @property
    def is_certain(self) -> bool:
        """Whether ``ahead`` is on the right side of the limit: a slow answer may show a difference that is none."""
        return self.is_large or abs(self.ahead) <= LIMIT_SECONDS


def clock_warning(found: ClockDifference) -> StatusWarning | None:
    """None: the clocks agree, or the measurement is too coarse to know."""
    if not found.is_large:
        return None
    word = "later than" if found.ahead > 0 else "earlier than"
    message = f"the clock of {found.whose} is {abs(found.ahead):.1f} s {word} that of {found.than}"
    return StatusWarning(name=kinds.CLOCKS_DIFFER, message=message, workaround=_TODO)
