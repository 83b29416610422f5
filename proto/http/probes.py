"""What a daemon answers HTTP probes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto.metrics.family import Sample


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a daemon can do its work. ``missing``: what it lacks, a phrase for each, without names of tasks, sources
    or servers; none: it is ready."""

    missing: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        return not self.missing


@dataclass(frozen=True, slots=True)
class Probes:
    """The sources of the answers. All of them read the memory of the process: none waits for a server.

    ``daemon``: dm-master or dm-worker. ``samples``: the metrics. ``loop_ages``: seconds since each loop of the daemon
    began its last round. ``readiness``: for a role, one of ``roles``, "" for the daemon's own work. ``leads``: whether
    it is the leader; None: such a daemon never is.
    """

    daemon: str
    version: str
    samples: Callable[[], Sequence[Sample]]
    loop_ages: Callable[[], Mapping[str, float]]
    readiness: Callable[[str], Readiness]
    roles: tuple[str, ...]
    leads: Callable[[], bool] | None = None
