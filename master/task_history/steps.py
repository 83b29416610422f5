"""Events of the leader's steps: of the placement, with workers that go and come back, and of DDL locks. Pure but for
memory."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.master.ddl_lock.records import Target
from shardmerge.master.ddl_lock.resolver import (
    ChangeOwner,
    Close,
    LetOwnerExecute,
    Nothing,
    Open,
    ReleaseTables,
    TakeBack,
    Unlock,
    Wait,
)
from shardmerge.master.ddl_lock.resolver import Step as LockStep
from shardmerge.master.ddl_lock.situation import Lock
from shardmerge.master.placement import Bind, Step
from shardmerge.master.state import State
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.task_history.event import Event, HistoryEntryKind


def placement_events(step: Step, state: State, now: float) -> Iterator[Event]:
    """A stored step, for each task on the source. That a worker has lost a source shows the :class:`WorkerChanges`."""
    if not isinstance(step, Bind):
        return
    if step.before:
        text = f"worker {step.worker} takes over from worker {step.before}, which is gone"
    else:
        text = f"bound to worker {step.worker}"
    yield from _binding_events(step.source, text, state, now)


class WorkerChanges:
    """Compares the records with those of the previous call. The first call reports nothing: the previous leader has."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[str, str]] = {}

    def forget(self) -> None:
        """Another master leads."""
        self._before = {}

    def observe(self, state: State, now: float) -> list[Event]:
        """What has happened to the workers of bound sources that stayed bound to them, and which sources are bound to
        none any more, for example by offline-member."""
        current: dict[str, tuple[str, str]] = {}
        for source, entry in state.bounds.items():
            worker = state.workers.get(entry.value.worker)
            current[source] = entry.value.worker, worker.value.incarnation if worker is not None else ""
        before, self._before = self._before, current
        found: list[Event] = []
        for source in sorted(before.keys() - current.keys()):
            found += _binding_events(source, f"no longer bound to worker {before[source][0]}", state, now)
        for source, (worker, incarnation) in sorted(current.items()):
            name, earlier = before.get(source, ("", ""))
            if name != worker or incarnation == earlier:
                continue
            what = "is gone" if not incarnation else "is back" if not earlier else "has started again"
            found += _binding_events(source, f"worker {worker} {what}", state, now)
        return found


def _binding_events(source: str, text: str, state: State, now: float) -> Iterator[Event]:
    for task in state.tasks_of(source):
        yield Event(task, HistoryEntryKind.BINDING, now, text, (source,), same=text)


def lock_event(target: Target, before: Lock | None, step: LockStep, now: float) -> Event | None:
    """A stored step of a lock; None: it is no event."""
    match step:
        case Open(lock):
            return _lock_event(target, lock.statement, "lock opened: shard tables wait for each other", now)
        case LetOwnerExecute(lock):
            text = f"all shard tables have reached it: source {lock.owner} runs it"
            return _lock_event(target, lock.statement, text, now)
        case ChangeOwner(lock):
            return _lock_event(target, lock.statement, f"source {lock.owner} is to run it now", now)
        case TakeBack(lock):
            return _lock_event(target, lock.statement, "not run: shard tables have not reached it", now)
        case ReleaseTables(lock) | Unlock(lock):
            forced = ", as an operator has decided" if lock.forced else ""
            return _lock_event(target, lock.statement, f"released: the shard tables continue{forced}", now)
        case Close():
            text = "lock closed: all shard tables have continued"
            return _lock_event(target, before.statement if before is not None else "", text, now)
        case Wait() | Nothing():
            return None


def conflict_event(target: Target, lock: Lock, error: ShardmergeError, now: float) -> Event:
    """Shard tables wait at different statements."""
    return Event(
        target.task,
        HistoryEntryKind.DDL,
        now,
        "conflict: shard tables wait at different statements",
        same=f"conflict {lock.generation}",
        statement=lock.statement,
        target=f"`{target.schema}`.`{target.table}`",
        code=error.code,
        name=error.spec.name,
        message=error.message,
    )


def _lock_event(target: Target, statement: str, text: str, now: float) -> Event:
    table = f"`{target.schema}`.`{target.table}`"
    same = "\n".join((table, text, statement))
    return Event(target.task, HistoryEntryKind.DDL, now, text, same=same, statement=statement, target=table)
