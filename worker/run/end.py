"""Where a run is to end, and what it leaves behind there."""

from __future__ import annotations

from proto import worker_pb2
from worker import bounds, ends, meta
from worker.bounds import Bound
from worker.connection import Session, server_info
from worker.ended import EndedUnit, load_report
from worker.meta import Phase
from worker.replicate import checkpoint as checkpoints
from worker.run.means import Means
from worker.snapshot.store import SnapshotStore
from worker.start_at import tells_commit_times
from worker.stop_at import Ending
from worker.unit import Finished, Outcome, StopSignal


def read_ending(means: Means, source: Session, target: Session, epoch: int, phase: Phase) -> Ending:
    """Where it is to end, as it was understood at first (recorded at the target)."""
    config, host = means.config, means.host
    with means.coding_target():
        recorded = bounds.read(target, *means.who)
    with means.coding_source():
        info = server_info(source)
        stop = ends.understood(config, source, info, recorded.get(bounds.Kind.STOP))
        if stop is not None and phase is Phase.NEW and ends.begins_now(config):
            ends.check_ahead(config, stop, source, info)
    if stop is not None and stop.bound != recorded.get(bounds.Kind.STOP):
        with means.coding_target():
            _enter(means, target, epoch, phase, stop.bound)
    exact = tells_commit_times(info)
    return Ending(config.task, means.source_id, host.relay, stop, host.clock.end, exact)


def settled(means: Means) -> Bound | None:
    """Before which place the target may hold changes already; None: it holds none."""
    with means.at_target() as target:
        return bounds.read(target, *means.who).get(bounds.Kind.SETTLED)


def ended(means: Means, target: Session, epoch: int) -> Outcome | None:
    """Nothing is left to do: the records say what it came to, and neither source nor relay log is needed.

    None: it has ended where it no longer is to end, and goes on.
    """
    config = means.config

    def forget(session: Session) -> None:
        bounds.forget(session, *means.who, bounds.Kind.REACHED)

    status: worker_pb2.LoadStatus | worker_pb2.SyncStatus
    with means.coding_target():
        found = bounds.read(target, *means.who).get(bounds.Kind.REACHED)
        if found is None:
            status = load_report(SnapshotStore(*means.who, 0).report(target))
        elif found.given == ends.given(config):
            status = ends.reached_status(found, config)
        else:
            meta.enter_phase(target, *means.who, epoch, Phase.REPLICATE, forget)
            return None
    return means.run_unit(EndedUnit(status), StopSignal())


def reached(means: Means, epoch: int, ending: Ending) -> Outcome:
    """Every lane has ended at the configured end."""
    assert ending.stop is not None  # noqa: S101 - for the type checker: nothing else ends lanes
    with means.at_target() as target:
        bound = ends.reached(ending.stop, checkpoints.read_begun(target, *means.who))
        _enter(means, target, epoch, Phase.FINISHED, bound)
        return ended(means, target, epoch) or Finished()


def finish(means: Means, epoch: int) -> None:
    """The history is all there is to copy."""
    with means.at_target() as target:
        meta.enter_phase(target, *means.who, epoch, Phase.FINISHED, lambda session: None)


def _enter(means: Means, target: Session, epoch: int, phase: Phase, bound: Bound) -> None:
    meta.enter_phase(target, *means.who, epoch, phase, lambda session: bounds.write(session, *means.who, bound))
