"""Decides when a source is too busy to be read. Pure: worker/snapshot/load_monitor.py measures the load.

Chunks are the unit, as for the rate limiter (rate_limiter.py): a chunk that has begun is read to its end; the next one
begins when the source is within its limits again. The readers' own sessions count as running threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Limits above which no chunk begins; 0: no limit.

    ``threads_running``: Threads_running of the source's status. ``replica_lag``: seconds, of a source that is a
    replica itself.
    """

    threads_running: int = 0
    replica_lag: int = 0

    @property
    def is_limited(self) -> bool:
        return bool(self.threads_running or self.replica_lag)


@dataclass(frozen=True, slots=True)
class SourceLoad:
    """The measured load of a source. ``replica_lags``: in seconds, one per server that it replicates from; None: that
    replication is stopped."""

    threads_running: int = 0
    replica_lags: Sequence[int | None] = ()


def throttle_reason(limits: LoadLimits, load: SourceLoad) -> str:
    """The exceeded limit with the measured value, one phrase; "" when no limit is exceeded."""
    most = limits.threads_running
    if most and load.threads_running > most:
        return f"snapshot.max-threads-running: {load.threads_running} threads run at the source, the limit is {most}"
    most = limits.replica_lag
    if most and None in load.replica_lags:
        return "snapshot.max-replica-lag: the source is a replica whose replication is stopped"
    lag = max((lag for lag in load.replica_lags if lag is not None), default=0)
    if most and lag > most:
        return f"snapshot.max-replica-lag: the source has a lag of {lag} s to its own source, the limit is {most} s"
    return ""
