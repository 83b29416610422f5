"""A picture of a master's memory, from which its metrics are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardmerge.master.leader.counts import LeaderFigures
from shardmerge.master.state import State
from shardmerge.proto.metrics.process import ProcessFigures
from shardmerge.proto.rpc.call_counts import NO_CALLS, CallFigures
from shardmerge.proto.warnings.certificates import CertificateEnd
from shardmerge.proto.warnings.clocks import ClockDifference


@dataclass(frozen=True, slots=True)
class MasterFigures:
    """``now``: Unix seconds. ``state``: the records as last read, ``state_age`` seconds ago; None: not read yet, or
    this master does not lead. ``calls``: of its gRPC server. ``clocks``: of workers, by name."""

    now: float
    process: ProcessFigures
    leads: bool
    counts: LeaderFigures
    state: State | None = None
    state_age: float = 0.0
    calls: CallFigures = NO_CALLS
    certificates: tuple[CertificateEnd, ...] = ()
    clocks: Mapping[str, ClockDifference] = field(default_factory=dict[str, ClockDifference])
