"""Events of the bindings of sources: steps of the placement, and workers that go and come back. Pure but for memory."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.master.placement import Bind, Step
from shardmerge.master.state import State
from shardmerge.proto.task_history.event import Event, Kind


def step_events(step: Step, state: State, now: float) -> Iterator[Event]:
    """A stored step, for each task on the source. That a worker has lost a source shows the :class:`WorkerWatch`."""
    if not isinstance(step, Bind):
        return
    if step.before:
        text = f"worker {step.worker} takes over from worker {step.before}, which is gone"
    else:
        text = f"bound to worker {step.worker}"
    yield from _events(step.source, text, state, now)


class WorkerWatch:
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
            found += _events(source, f"no longer bound to worker {before[source][0]}", state, now)
        for source, (worker, incarnation) in sorted(current.items()):
            name, earlier = before.get(source, ("", ""))
            if name != worker or incarnation == earlier:
                continue
            what = "is gone" if not incarnation else "is back" if not earlier else "has started again"
            found += _events(source, f"worker {worker} {what}", state, now)
        return found


def _events(source: str, text: str, state: State, now: float) -> Iterator[Event]:
    for task in state.tasks_of(source):
        yield Event(task, Kind.BINDING, now, text, (source,), same=text)
