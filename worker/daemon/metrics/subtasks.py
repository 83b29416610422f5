"""Samples of one subtask: stage, lag, progress, runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.proto import common_pb2, worker_pb2
from shardmerge.proto.metrics import dm_other, dm_syncer, own_worker
from shardmerge.proto.metrics.family import Sample
from shardmerge.worker.daemon.metrics.binlog_place import file_and_position
from shardmerge.worker.daemon.metrics.figures import CompareFigures, SubTaskFigures
from shardmerge.worker.daemon.metrics.run_counts import DUMP, LOAD, SYNC
from shardmerge.worker.relay.fetch.dump_connection import HEARTBEAT_SECONDS

_EXITS = {DUMP: dm_other.DUMP_EXIT, LOAD: dm_other.LOAD_EXIT, SYNC: dm_syncer.EXIT_WITH_ERROR}
_OUTCOMES = ("finished", "stopped", "failed")
# Two heartbeats of a source.
_HEARTBEAT_LATE_SECONDS = 2 * HEARTBEAT_SECONDS
_ALL_APPLIED = ("idle", 0.0)
_PHASES: tuple[str, ...] = ("starting", "copying", "following", "failed")


def subtask_samples(
    figures: SubTaskFigures, source: str, worker: str, now: float, silent_seconds: float | None, *, has_lease: bool
) -> Iterator[Sample]:
    """``now``: on the clock of the figures' totals. ``silent_seconds``: since an event or a heartbeat of the source
    last arrived, None: none has. ``has_lease``: without it the worker has paused the subtask, and another worker may
    run it: then only that one has its stage and progress. An error that has paused it before stays."""
    status = figures.status
    of = {"task": status.name, "source_id": source}
    has_failed = bool(status.result.errors)
    may_run_elsewhere = not has_lease and not has_failed
    yield own_worker.EPOCH.sample(status.epoch, **of)
    yield from _compared(figures.compared, of)
    is_paused = status.stage == common_pb2.STAGE_PAUSED
    if not may_run_elsewhere:
        yield dm_other.TASK_STATE.sample(status.stage, **of, worker=worker)
        yield dm_syncer.SHARD_LOCK_RESOLVING.sample(figures.has_lock, **of)
        by_operator = figures.paused_by_operator or not has_failed
        yield own_worker.PAUSED_BY.sample(is_paused and by_operator, **of, by="operator")
        yield own_worker.PAUSED_BY.sample(is_paused and not by_operator, **of, by="error")
    yield from _runs(figures, of)
    yield from _joining(status, of)
    if may_run_elsewhere:
        return
    yield own_worker.PROGRESS_AGE.sample(_progress_age(figures, now), **of)
    if status.WhichOneof("status") == "sync":
        yield from _sync(figures, of, worker, now, silent_seconds)


def _compared(compared: CompareFigures, of: dict[str, str]) -> Iterator[Sample]:
    yield own_worker.COMPARING.sample(compared.is_running, **of)
    if compared.finished:
        yield own_worker.COMPARE_FINISHED.sample(compared.finished, **of)
        yield own_worker.COMPARE_ROWS.sample(compared.rows, **of)
    for kind, count in compared.differences.items():
        yield own_worker.COMPARE_DIFFERENCES.sample(count, **of, kind=kind)


def _runs(figures: SubTaskFigures, of: dict[str, str]) -> Iterator[Sample]:
    runs = figures.runs
    for outcome in _OUTCOMES:
        yield own_worker.RUNS.sample(runs.outcomes.get(outcome, 0), **of, outcome=outcome)
    for code, count in sorted(runs.failures.items()):
        yield own_worker.FAILURES.sample(count, **of, code=str(code))
    yield own_worker.FENCED.sample(runs.fenced, **of)
    for unit, family in _EXITS.items():
        for resumable in (True, False):
            count = runs.exits.get((unit, resumable), 0)
            yield family.sample(count, **of, resumable_err="true" if resumable else "false")
    yield own_worker.RESUME_ATTEMPTS.sample(figures.failures_in_row, **of)
    if figures.resume_seconds is not None:
        yield own_worker.RESUME_IN.sample(figures.resume_seconds, **of)


def _progress_age(figures: SubTaskFigures, now: float) -> float:
    ages = [now - at for at in figures.totals.moved_at.values()]
    if figures.chunk_seconds is not None:
        ages.append(figures.chunk_seconds)
    return max(0.0, min([figures.known_seconds, *ages]))


def _joining(status: worker_pb2.SubTaskStatus, of: dict[str, str]) -> Iterator[Sample]:
    counts: dict[str, int] = dict.fromkeys(_PHASES, 0)
    joins = [*status.copies, *([status.join] if status.HasField("join") and not status.copies else [])]
    for join in joins:
        counts[join.phase] = counts.get(join.phase, 0) + len(join.tables)
    for phase, count in counts.items():
        yield own_worker.JOINING.sample(count, **of, phase=phase)


def _sync(
    figures: SubTaskFigures, of: dict[str, str], worker: str, now: float, silent_seconds: float | None
) -> Iterator[Sample]:
    sync = figures.status.sync
    yield own_worker.SYNCED.sample(sync.synced, **of)
    yield own_worker.QUARANTINED.sample(sync.held_keys, **of)
    for node, text in (("master", sync.master_binlog), ("syncer", sync.syncer_binlog)):
        place = file_and_position(text)
        if place is not None:
            yield dm_syncer.BINLOG_FILE.sample(place[0], **of, node=node)
            yield dm_syncer.BINLOG_POS.sample(place[1], **of, node=node)
    if sync.unknown:
        is_retried = figures.status.stage == common_pb2.STAGE_RUNNING or figures.resume_seconds is not None
        if is_retried and figures.applied_seconds is not None:
            yield own_worker.LAG.sample(figures.applied_seconds, **of, basis="retry")
            yield dm_syncer.REPLICATION_LAG.sample(figures.applied_seconds, **of, worker=worker)
        return
    yield own_worker.BYTES_BEHIND.sample(sync.bytes_behind, **of)
    lag = lag_of(sync, silent_seconds)
    if lag is not None:
        basis, seconds = lag
        yield own_worker.LAG.sample(seconds, **of, basis=basis)
        yield dm_syncer.REPLICATION_LAG.sample(seconds, **of, worker=worker)
    # The place from which a restart reads may stay before the last event when all is applied.
    remaining = 0.0 if lag == _ALL_APPLIED else figures.remaining_seconds
    if remaining is not None:
        yield dm_syncer.REMAINING_TIME.sample(remaining, **of, worker=worker)
    behind = [
        figures.totals.moved_at[lane.lane] for lane in sync.lanes if lane.bytes_behind and _has_moved(figures, lane)
    ]
    yield own_worker.CHECKPOINT_AGE.sample(max((now - at for at in behind), default=0.0), **of)


def _has_moved(figures: SubTaskFigures, lane: worker_pb2.LaneStatus) -> bool:
    return lane.lane in figures.totals.moved_at


def lag_of(sync: worker_pb2.SyncStatus, silent_seconds: float | None) -> tuple[str, float] | None:
    """(basis, seconds); None: it is not known. 0 only if everything that the source has written is applied.

    ``silent_seconds``: see :func:`subtask_samples`. A source that does not even send its heartbeats may have written
    more.
    """
    if sync.unknown:
        return None
    if sync.oldest_ms > 0:
        return "event", sync.oldest_ms / 1000
    if sync.bytes_behind:
        # The commit time of what is not applied is not known yet: an age of 0 would be wrong.
        return ("event", sync.lag_ms / 1000) if sync.lag_ms > 0 else None
    if silent_seconds is None:
        return None
    return ("heartbeat", silent_seconds) if silent_seconds > _HEARTBEAT_LATE_SECONDS else _ALL_APPLIED
