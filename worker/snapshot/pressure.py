"""When a source has too much to do to be read as well. Pure: worker/snapshot/gauge.py asks the source.

Chunks are the unit, as for the pace (worker/snapshot/pace.py): one that has begun is read to its end, the next begins
when the source is at ease again. The readers' own sessions are among the running threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bearable:
    """``threads_running``: Threads_running of the source's status; ``replica_lag``: seconds, of the source if it is a
    replica itself. Above them no chunk begins. 0: no limit."""

    threads_running: int = 0
    replica_lag: int = 0

    @property
    def is_limited(self) -> bool:
        return bool(self.threads_running or self.replica_lag)


@dataclass(frozen=True, slots=True)
class Pressure:
    """What the source says of itself. ``replica_lags``: in seconds, one per server that it replicates from; None:
    that replication stands still."""

    threads_running: int = 0
    replica_lags: Sequence[int | None] = ()


def waits_for(bearable: Bearable, pressure: Pressure) -> str:
    """The limit that holds chunks back and what stands against it, one phrase; "" when none does."""
    most = bearable.threads_running
    if most and pressure.threads_running > most:
        return f"snapshot.max-threads-running: {pressure.threads_running} threads run at the source, {most} may"
    most = bearable.replica_lag
    if most and None in pressure.replica_lags:
        return "snapshot.max-replica-lag: the source is a replica that stands still"
    lag = max((lag for lag in pressure.replica_lags if lag is not None), default=0)
    if most and lag > most:
        return f"snapshot.max-replica-lag: the source lags {lag} s behind its own source, {most} s may be"
    return ""
