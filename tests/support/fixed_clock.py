"""The end of a source's binlog that does not move."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.source_clock import SourceEnd


@dataclass(frozen=True, slots=True)
class FixedClock:
    """A :class:`shardmerge.worker.relay.source_clock.SourceClock`."""

    at: SourcePosition

    def position(self) -> SourcePosition:
        return self.at

    def end(self) -> SourceEnd:
        return SourceEnd(self.at, 0.0)

    def age(self) -> float:
        return 0.0

    def unknown(self) -> str:
        return ""
