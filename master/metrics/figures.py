"""A picture of a master's memory, from which its metrics are computed."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.master.leader.counts import LeaderFigures
from shardmerge.master.state import State
from shardmerge.proto.metrics.process import ProcessFigures


@dataclass(frozen=True, slots=True)
class MasterFigures:
    """``now``: Unix seconds. ``state``: the records as last read, ``state_age`` seconds ago; None: not read yet, or
    this master does not lead."""

    now: float
    process: ProcessFigures
    leads: bool
    counts: LeaderFigures
    state: State | None = None
    state_age: float = 0.0
