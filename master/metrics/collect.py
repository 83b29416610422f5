"""All samples of a master. Pure. Followers export nothing of the records: each value exists once in the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardmerge.master.ddl_lock.records import Situations, Target, to_lock
from shardmerge.master.ddl_lock.report import conflicts_in, sync_of
from shardmerge.master.ddl_lock.situation import LockStage
from shardmerge.master.leader.counts import LeaderFigures
from shardmerge.master.state import State
from shardmerge.proto import common_pb2
from shardmerge.proto.metrics import dm_other, own_master
from shardmerge.proto.metrics.certificates import certificate_samples
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.metrics.process import ProcessFigures, process_samples
from shardmerge.proto.rpc.call_counts import NO_CALLS, CallFigures
from shardmerge.proto.warnings.certificates import CertificateEnd
from shardmerge.proto.warnings.clocks import ClockDifference

_LOCK_ERROR = "InfoPut - HandleLockError"
_LOCK_ERRORS = (
    "InfoPut - SyncLockError",
    _LOCK_ERROR,
    "OperationPut - RemoveLockError",
    "OperationPut - LockUnSyncedError",
    "OperationPut - PutNonOwnerOpError",
)
"""DM's types."""
_OFFLINE, _FREE, _BOUND = 0, 1, 2


@dataclass(frozen=True, slots=True)
class MasterFigures:
    """``now``: Unix seconds. ``state``: the records as last read, ``state_age`` seconds ago; None: not read yet, or
    this master does not lead. ``calls``: of its gRPC server. ``clocks``: of workers, by name."""

    now: float
    process: ProcessFigures
    leads: bool
    counts: LeaderFigures
    state: State | None = None
    state_age: float = 0.0
    calls: CallFigures = NO_CALLS
    certificates: tuple[CertificateEnd, ...] = ()
    clocks: Mapping[str, ClockDifference] = field(default_factory=dict[str, ClockDifference])


def master_samples(figures: MasterFigures) -> Iterator[Sample]:
    yield from process_samples(figures.process, dm_other.MASTER_CPU)
    yield from certificate_samples(figures.certificates)
    yield from _calls(figures.calls)
    yield own_master.LEADER.sample(figures.leads)
    yield dm_other.START_LEADER.sample(figures.counts.terms)
    for kind in ("bind", "rebind", "unbind"):
        yield own_master.PLACEMENTS.sample(figures.counts.placements.get(kind, 0), kind=kind)
    state = figures.state
    if state is None or not figures.leads:
        return
    yield own_master.RECORDS_AGE.sample(figures.state_age)
    yield own_master.RECORDS_REVISION.sample(state.revision)
    yield own_master.MASTERS.sample(len(state.masters))
    yield from _workers(state)
    for worker, clock in sorted(figures.clocks.items()):
        if clock.is_certain:
            yield own_master.WORKER_CLOCK.sample(clock.ahead, worker=worker)
    yield from _sources(state)
    yield from _subtasks(state)
    yield from _locks(state, figures.now)
    for task in _tasks(state):
        for kind in _LOCK_ERRORS:
            count = figures.counts.lock_errors.get(task, 0) if kind == _LOCK_ERROR else 0
            yield dm_other.SHARD_DDL_ERROR.sample(count, task=task, type=kind)


def _calls(calls: CallFigures) -> Iterator[Sample]:
    for (method, code), count in sorted(calls.calls.items()):
        yield own_master.API_REQUESTS.sample(count, method=method, code=code)
    for method, seconds in sorted(calls.seconds.items()):
        yield own_master.API_SECONDS.sample(seconds, method=method)


def _tasks(state: State) -> list[str]:
    return sorted({task for task, _ in state.subtasks})


def _workers(state: State) -> Iterator[Sample]:
    bound = {entry.value.worker for entry in state.bounds.values()}
    for worker in sorted({*state.workers, *bound}):
        if worker not in state.workers:
            yield dm_other.WORKER_STATE.sample(_OFFLINE, worker=worker)
        else:
            yield dm_other.WORKER_STATE.sample(_BOUND if worker in bound else _FREE, worker=worker)
    live = len(bound & state.workers.keys())
    yield own_master.WORKERS.sample(live, state="bound")
    yield own_master.WORKERS.sample(len(state.workers) - live, state="free")


def _sources(state: State) -> Iterator[Sample]:
    enabled = state.enabled()
    bound = {source for source in enabled if state.worker_of(source) is not None}
    yield own_master.SOURCES.sample(len(bound), state="bound")
    yield own_master.SOURCES.sample(len(enabled) - len(bound), state="unbound")
    yield own_master.SOURCES.sample(len(state.sources) - len(enabled), state="disabled")
    for source in sorted(enabled):
        yield own_master.SOURCE_BOUND.sample(source in bound, source_id=source, worker=state.bound_name(source))


def _subtasks(state: State) -> Iterator[Sample]:
    counts = Counter(
        (task, entry.value.expected == common_pb2.STAGE_RUNNING) for (task, _), entry in state.subtasks.items()
    )
    for task in _tasks(state):
        yield own_master.SUBTASKS.sample(counts[task, True], task=task, expected="running")
        yield own_master.SUBTASKS.sample(counts[task, False], task=task, expected="paused")


def _locks(state: State, now: float) -> Iterator[Sample]:
    stages: Counter[tuple[str, str]] = Counter()
    sources: Counter[tuple[str, str]] = Counter()
    oldest: dict[str, tuple[float, str]] = {}  # its age and its id
    situations = Situations(state)
    for key, entry in state.locks.items():
        target, lock = Target(*key), to_lock(entry.value)
        synced, unsynced = sync_of(situations.of(target), lock)
        stages[target.task, lock.stage.value] += 1
        stages[target.task, "Un-synced" if unsynced else "Synced"] += 1
        sources[target.task, "synced"] += len(synced)
        sources[target.task, "unsynced"] += len(unsynced)
        aged = now - lock.since, target.lock_id
        oldest[target.task] = max(oldest.get(target.task, aged), aged)
    conflicts = sorted(conflicts_in(state).values(), key=lambda each: (each.since, each.target))
    counts = Counter(each.target.task for each in conflicts)
    first = {each.target.task: each for each in reversed(conflicts)}
    for task in _tasks(state):
        yield own_master.DDL_CONFLICTS.sample(counts[task], task=task)
        if task in first:
            table = first[task].first
            yield own_master.DDL_CONFLICT_OLDEST.sample(
                1,
                task=task,
                lock=first[task].target.lock_id,
                source_id=table.source,
                table=f"`{table.schema}`.`{table.table}`",
            )
        for stage in LockStage:
            yield own_master.DDL_LOCKS.sample(stages[task, stage.value], task=task, stage=stage.value)
        for kind in ("Un-synced", "Synced"):
            yield dm_other.DDL_STATE.sample(stages[task, kind], task=task, type=kind)
        for lock_state in ("synced", "unsynced"):
            yield own_master.DDL_LOCK_SOURCES.sample(sources[task, lock_state], task=task, state=lock_state)
        if task in oldest:
            age, lock_id = oldest[task]
            yield own_master.DDL_LOCK_AGE.sample(max(0.0, age), task=task)
            yield own_master.DDL_LOCK_OLDEST.sample(1, task=task, lock=lock_id)
