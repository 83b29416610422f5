"""From two samples of a worker's memory to what a subtask has done between them; its overview. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardmerge.proto import common_pb2, worker_pb2
from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.worker.core.batch import ChangeCounts
from shardmerge.worker.core.lane_hash import hash_indexes
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.daemon.metrics.subtasks import lag_of
from shardmerge.worker.replicate.lag import unfetched_bytes
from shardmerge.worker.replicate.lane_totals import NO_TOTALS, LaneTotal, SubTaskTotals
from shardmerge.worker.snapshot.limits.reader_times import NO_SECONDS, ReaderSeconds

_MOST_TABLES = 5
_NO_LANE = LaneTotal()
_NOWHERE = SourcePosition("", 0)


@dataclass(frozen=True, slots=True)
class CopySample:
    """A history that is copied. ``throttle``: see CopyUse in proto/diagnose.proto."""

    seconds: ReaderSeconds = NO_SECONDS
    throttle: str = ""
    readers: int = 0


@dataclass(frozen=True, slots=True)
class RelaySample:
    """The relay log, and the source as its clock has seen it last. ``unknown``: why both may be out of date."""

    fetched_bytes: int = 0
    head: SourcePosition = _NOWHERE
    source_end: SourcePosition = _NOWHERE
    round_trip: float | None = None
    unknown: str = ""

    @property
    def unfetched(self) -> int | None:
        """Bytes that the relay log lacks, as far as known; None: unknown."""
        if self.unknown or not self.source_end.file or not self.head.file:
            return None
        return unfetched_bytes(self.head, self.source_end)


NO_RELAY = RelaySample()


@dataclass(frozen=True, slots=True)
class SubTaskSample:
    """A subtask at the monotonic time ``at``. ``plans``: of the stream that its lanes apply. ``connections``: of the
    lanes to the target, by lane. ``locked``: the target tables of the task that have a sharding-DDL lock; those that
    are parked there have no plans."""

    at: float
    status: worker_pb2.SubTaskStatus
    relay: RelaySample = NO_RELAY
    totals: SubTaskTotals = NO_TOTALS
    plans: tuple[TablePlan, ...] = ()
    connections: Mapping[int, int] = field(default_factory=dict[int, int])
    copy: CopySample | None = None
    compared: bool = False
    locked: tuple[TargetTable, ...] = ()


def use_between(before: SubTaskSample, after: SubTaskSample) -> pb.SubTaskUse:
    """The figures of the time between both samples. Without the look at the target, and without Spark."""
    found = pb.SubTaskUse(seconds=after.at - before.at, compared=after.compared)
    reasons = one_lane_reasons(after.plans)
    shown = {lane.lane for lane in after.status.sync.lanes}
    for number in sorted(shown or after.totals.lanes.keys()):
        earlier, later = (each.totals.lanes.get(number, _NO_LANE) for each in (before, after))
        found.lanes.append(lane_use(number, earlier, later, after.connections.get(number, 0), reasons))
    found.relay.CopyFrom(_relay_use(before.relay, after.relay))
    if after.copy is not None:
        earlier_copy = before.copy.seconds if before.copy is not None else NO_SECONDS
        found.copy.throttle = after.copy.throttle
        found.copy.readers = after.copy.readers
        found.copy.seconds.update(after.copy.seconds.since(earlier_copy))
    return found


def lane_use(
    number: int, before: LaneTotal, after: LaneTotal, connection: int, one_lane: Mapping[TargetTable, str]
) -> pb.LaneUse:
    """What a lane has done. The totals of a lane never fall, also if its process was replaced. ``one_lane``: see
    :func:`one_lane_reasons`."""
    seconds = {cause: value - before.seconds.get(cause, 0.0) for cause, value in after.seconds.items()}
    found = pb.LaneUse(
        lane=number,
        written_rows=max(0, after.written_rows - before.written_rows),
        transactions=max(0, after.transactions - before.transactions),
        commit_seconds=max(0.0, after.commit_seconds.sum - before.commit_seconds.sum),
        connection=connection,
    )
    found.seconds.update({cause: value for cause, value in seconds.items() if value > 0})
    tables = _changes_between(before.changes.by_table(), after.changes.by_table())
    found.changes = sum(count for _, count in tables)
    for target, count in tables[:_MOST_TABLES]:
        found.tables.add(table=target.quoted, changes=count, one_lane=one_lane.get(target, ""))
    if after.hot_key is not None:
        found.hot_key.CopyFrom(after.hot_key)
    return found


def _changes_between(
    before: Mapping[TargetTable, ChangeCounts], after: Mapping[TargetTable, ChangeCounts]
) -> list[tuple[TargetTable, int]]:
    """The tables with changes, those with the most first."""
    counts = [(target, _all(counts) - _all(before.get(target))) for target, counts in after.items()]
    return sorted((each for each in counts if each[1] > 0), key=lambda each: (-each[1], each[0]))


def _all(counts: ChangeCounts | None) -> int:
    return 0 if counts is None else counts.inserts + counts.updates + counts.deletes


def one_lane_reasons(plans: Sequence[TablePlan]) -> dict[TargetTable, str]:
    """Why all rows of a target table have one lane, as a phrase that follows "because"; tables that are spread over all
    lanes are absent."""
    return {plan.target: _reason(plan) for plan in plans if not hash_indexes(plan)}


def _reason(plan: TablePlan) -> str:
    if not plan.key:
        return "it has no key"
    if plan.one_lane:
        return "it has a further unique key, or one WITHOUT OVERLAPS"
    if plan.lane_group:
        return "foreign keys connect it with other tables"
    return "equal keys may differ in their bytes (text of this collation, or floating point)"


def _relay_use(before: RelaySample, after: RelaySample) -> pb.RelayUse:
    return pb.RelayUse(
        fetched_bytes=max(0, after.fetched_bytes - before.fetched_bytes),
        source_moved=before.source_end.file_order() != after.source_end.file_order(),
        unfetched_before=before.unfetched,
        unfetched_after=after.unfetched,
        round_trip=after.round_trip,
    )


def overview(
    status: worker_pb2.SubTaskStatus,
    seconds: Mapping[str, float],
    throttle: str = "",
    silent_seconds: float | None = None,
) -> pb.SubTaskOverview:
    """The figures of a subtask's status without lanes and tables, for `dmctl top`.

    ``seconds``: of the lanes, by cause; ``throttle``: see CopyUse in proto/diagnose.proto; ``silent_seconds``: since
    an event or a heartbeat of the source last arrived, None: none has."""
    found = pb.SubTaskOverview(
        task=status.name, stage=status.stage, unit=status.unit, waiting_for=status.waiting_for, throttle=throttle
    )
    found.seconds.update(seconds)
    for error in status.result.errors:
        found.error.CopyFrom(common_pb2.ErrorDetail(code=error.code, name=error.name, retryable=error.retryable))
    match status.WhichOneof("status"):
        case "load":
            _copy(found, status.load)
        case "sync":
            _replication(found, status.sync, silent_seconds)
        case _:
            pass
    return found


def _copy(found: pb.SubTaskOverview, load: worker_pb2.LoadStatus) -> None:
    found.share = float(load.progress.removesuffix(" %") or 0) / 100
    found.eta_seconds = load.eta_seconds
    found.recent_rps = round(load.rows_per_second)


def _replication(found: pb.SubTaskOverview, sync: worker_pb2.SyncStatus, silent_seconds: float | None) -> None:
    found.synced = sync.synced
    found.recent_rps = sync.recent_rps
    found.held_keys = sync.held_keys
    found.unknown = sync.unknown
    found.bytes_behind = sync.bytes_behind
    lag = lag_of(sync, silent_seconds)
    if lag is not None:
        found.lag_seconds = lag[1]
