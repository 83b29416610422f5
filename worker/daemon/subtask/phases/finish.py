"""Determines where a run ends, and records its end."""

from __future__ import annotations

from collections.abc import Iterable

from shardmerge.proto import failpoints, worker_pb2
from shardmerge.worker.core.mysql.connection import Session, server_info
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.daemon.subtask.phases.run_tables import adder_of
from shardmerge.worker.daemon.subtask.run_resources import RunResources
from shardmerge.worker.replicate.bounds import configured_bounds
from shardmerge.worker.replicate.bounds.start_point import has_commit_times
from shardmerge.worker.replicate.bounds.stop_point import StopSearch
from shardmerge.worker.snapshot.chunk_records import TableReport
from shardmerge.worker.snapshot.chunk_store import SnapshotStore
from shardmerge.worker.target.records import bounds, subtask_record
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records.bounds import Bound
from shardmerge.worker.target.records.subtask_record import Phase
from shardmerge.worker.unit.contract import Finished, Outcome, Stopped


def read_stop_search(resources: RunResources, source: Session, target: Session, epoch: int, phase: Phase) -> StopSearch:
    """The search of the run's end, as it was first resolved (recorded at the target)."""
    config, host = resources.config, resources.host
    with resources.coded_target_errors():
        recorded = bounds.read(target, resources.who)
    with resources.coded_source_errors():
        info = server_info(source)
        stop = configured_bounds.resolve_stop(config, source, info, recorded.get(bounds.BoundKind.STOP))
        if stop is not None and phase is Phase.NEW and configured_bounds.begins_at_source_end(config):
            configured_bounds.check_stop_is_ahead(config, stop, source, info)
    if stop is not None and stop.bound != recorded.get(bounds.BoundKind.STOP):
        with resources.coded_target_errors():
            _enter(resources, target, epoch, phase, stop.bound)
    exact = has_commit_times(info)
    return StopSearch(config.task, resources.source_id, host.relay, stop, host.clock.end, exact)


def read_safe_mode_bound(resources: RunResources) -> Bound | None:
    """The position before which changes may already be at the target; None: none are."""
    with resources.at_target() as target:
        return bounds.read(target, resources.who).get(bounds.BoundKind.SAFE_MODE_UNTIL)


def finished_outcome(resources: RunResources, target: Session, epoch: int) -> Outcome | None:
    """The outcome of a finished subtask, from its records; neither the source nor the relay log is needed.

    None: its configured end has changed since, and it continues.
    """
    config = resources.config

    def forget(session: Session) -> None:
        bounds.delete(session, resources.who, bounds.BoundKind.REACHED)

    status: worker_pb2.LoadStatus | worker_pb2.SyncStatus
    with resources.coded_target_errors():
        found = bounds.read(target, resources.who).get(bounds.BoundKind.REACHED)
        if found is None:
            status = _final_load_status(SnapshotStore(resources.who, 0).report(target))
        elif found.requested == configured_bounds.configured_stop_json(config):
            status = configured_bounds.reached_status(found, config)
        else:
            subtask_record.enter_phase(target, resources.who, epoch, Phase.REPLICATE, forget)
            return None
    return resources.run_unit(_FinishedUnit(status), StopSignal())


def finish_at_stop(resources: RunResources, epoch: int, stop_search: StopSearch) -> Outcome:
    """Record that every lane has ended at the configured end."""
    assert stop_search.stop is not None  # noqa: S101 - for the type checker: nothing else ends lanes
    with resources.at_target() as target:
        bound = configured_bounds.stop_reached(stop_search.stop, checkpoints.read_begun(target, resources.who))
        _enter(resources, target, epoch, Phase.FINISHED, bound)
        return finished_outcome(resources, target, epoch) or Finished()


def finish_full(resources: RunResources, epoch: int, plans: tuple[TablePlan, ...], stop: StopSignal) -> Outcome:
    """Add the indexes that ``plans`` still lack, and record that a subtask of task-mode full has copied everything."""
    adder_of(resources, plans).add(stop)
    if stop.is_set:
        return Stopped()
    failpoints.hit("full.finishing")
    with resources.at_target() as target:
        subtask_record.enter_phase(target, resources.who, epoch, Phase.FINISHED, lambda session: None)
        return finished_outcome(resources, target, epoch) or Finished()


def _enter(resources: RunResources, target: Session, epoch: int, phase: Phase, bound: Bound) -> None:
    subtask_record.enter_phase(
        target, resources.who, epoch, phase, lambda session: bounds.write(session, resources.who, bound)
    )


class _FinishedUnit:
    """The ProcessUnit of a finished subtask; ``status``: its final status, from its records at the target.

    No process needs to keep this status: a worker that starts, or takes the source over, reads it again.
    """

    def __init__(self, status: worker_pb2.LoadStatus | worker_pb2.SyncStatus) -> None:
        self._status = status

    def run(self, stop: StopSignal) -> Outcome:
        return Finished()

    def status(self) -> worker_pb2.LoadStatus | worker_pb2.SyncStatus:
        return self._status

    def activity(self) -> str:
        return ""


def _final_load_status(tables: Iterable[TableReport]) -> worker_pb2.LoadStatus:
    """The final status of a finished snapshot."""
    status = worker_pb2.LoadStatus(progress="100.00 %", plan_complete=True)
    for table in tables:
        status.tables.append(
            worker_pb2.TableProgress(
                source_table=table.source_table,
                target_table=table.target_table,
                finished_rows=table.rows,
                total_rows=table.rows,
                finished_chunks=table.chunks,
                total_chunks=table.chunks,
                finished_bytes=table.bytes,
                seconds=table.seconds,
            )
        )
        status.finished_rows += table.rows
        status.total_rows += table.rows
        status.finished_bytes += table.bytes
        status.total_bytes += table.bytes
        status.finished_chunks += table.chunks
        status.total_chunks += table.chunks
    return status
