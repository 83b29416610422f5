"""The settings of a run's lanes, which are pickled into their Spark tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardmerge.proto import errors, relay_pb2
from shardmerge.worker.core.cascades import CascadeKey
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.replicate.lane.lane_change import LaterPlan
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.rules.table_window import TableWindow
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.target.apply.target_session import ApplySettings
from shardmerge.worker.target.quarantine.skipped_events import Skips
from shardmerge.worker.target.records.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class LaneStart:
    """Where a lane begins in *this* relay log, if its checkpoint is still the one of ``seq``."""

    seq: int
    offset: RelayOffset


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """The settings of all lanes of one run; pickled into the Spark tasks.

    ``secret``: the secret of the run. ``apply.target`` carries no password; each lane fetches it.
    ``windows``: of the plans' tables of which the lanes apply only a part. ``later``: plans that apply from later
    places on.
    ``starts``: by lane; the checkpoint's offset, translated if it belongs to another relay log.
    ``relay_directory``: of relay log ``relay_id``, on the worker's machine.
    ``handover``: None once every chunk's high watermark is cleared.
    ``until``: the group end at which the lanes commit and end; None: they have no end. ``skips``: row events that an
    operator's override skips. ``cascades``: the foreign keys whose effect on rows the lanes derive.
    """

    address: str
    secret: str = field(repr=False)
    epoch: int
    lanes: int
    apply: ApplySettings
    plans: tuple[TablePlan, ...]
    scope: TableScope
    windows: tuple[TableWindow, ...]
    later: tuple[LaterPlan, ...]
    starts: tuple[LaneStart, ...]
    relay_directory: str
    relay_id: str
    handover: Handover | None
    batch_rows: int
    batch_bytes: int
    until: RelayOffset | None = None
    skips: Skips = frozenset()
    cascades: tuple[CascadeKey, ...] = ()

    def bucket(self, lane: int) -> Bucket:
        """The bucket of keys that lane number ``lane`` applies."""
        return Bucket(lane, self.lanes)

    def identity(self, lane: int) -> relay_pb2.TaskIdentity:
        """How lane number ``lane`` identifies itself to its worker."""
        apply = self.apply
        return relay_pb2.TaskIdentity(
            task=apply.task,
            source=apply.source,
            epoch=self.epoch,
            index=lane,
            stream=apply.stream.value,
            run_secret=self.secret,
        )

    def first_offset(self, lane: int, found: Checkpoint) -> RelayOffset:
        """The offset in the current relay log of ``found``, the checkpoint of lane number ``lane``.

        Raises STREAM_LOST if the checkpoint has moved and its offset is of another relay log.
        """
        start = self.starts[lane]
        if found.seq == start.seq:
            return start.offset
        if found.relay_id == self.relay_id:
            # An earlier attempt of this very run (Spark may retry a task) has committed since.
            return found.offset
        raise errors.worker.STREAM_LOST(
            lane=lane, address=self.address, reason="another attempt has moved the checkpoint"
        )
