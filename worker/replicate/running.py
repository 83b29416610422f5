"""A replicate unit that runs, and the registry through which its lanes reach it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.spark.run_access import RunAccess
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.serve.subscription import Edges, Limit
from shardmerge.worker.replicate.alignment import AlignmentPoint
from shardmerge.worker.replicate.lane_coordinator import LaneCoordinator
from shardmerge.worker.replicate.lane_shares import LaneShares
from shardmerge.worker.rules.transform.expressions import RunExpressions


def _no_edges() -> tuple[RelayOffset, ...]:
    return ()


def _nowhere(place: RelayOffset) -> AlignmentPoint | None:
    return None


@dataclass(frozen=True, slots=True)
class RunningReplicate:
    """A running replicate unit, as its lanes reach it.

    ``access``: authenticates its lanes. ``in_scope``: the statements before which its lanes must stop. ``limit``: where
    they end, or wait if ``alignment_at`` returns an alignment there. ``compiled``: the expressions that its lanes may
    evaluate. ``edges``: see :data:`shardmerge.worker.relay.serve.subscription.Edges`. ``shares``: splits the blocks for
    lanes on other machines; None: each of them gets all events.
    """

    coordinator: LaneCoordinator
    access: RunAccess
    in_scope: Callable[[Statement], bool]
    limit: Limit | None = None
    alignment_at: Callable[[RelayOffset], AlignmentPoint | None] = _nowhere
    compiled: RunExpressions = field(default_factory=RunExpressions)
    edges: Edges = _no_edges
    shares: LaneShares | None = None


class LaneRegistry(Protocol):
    """The worker's service for Spark tasks: it serves the lanes of registered units. Thread-safe."""

    def register_lanes(self, running: RunningReplicate) -> None:
        """The unit's lanes may connect from now on; it replaces an earlier unit of the same task and stream."""
        ...

    def unregister_lanes(self, coordinator: LaneCoordinator) -> None:
        """The unit's lanes have ended. Has no effect if another unit has replaced it."""
        ...
