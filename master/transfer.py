"""transfer-source: another worker takes a source over while its tasks run.

Safe at any time, for the reasons that make the death of a worker safe: the binding is one record, and the new
worker's epochs shut the old one's lanes out (I3). What is asked before is whether it can get what the tasks still need:
the relay log stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.placement import Bind
from master.source_update import check_answer
from master.stages import Waiter, failed
from master.state import State
from master.store import Store
from master.workers import Workers
from proto import errors, worker_pb2
from proto import master_pb2 as pb
from proto.errors import ShardmergeError

_THERE = "it is there already"


@dataclass(frozen=True, slots=True)
class Transfers:
    store: Store
    workers: Workers
    waiter: Waiter
    check_seconds: float

    def transfer(self, request: pb.TransferSourceRequest) -> pb.TransferSourceResponse:
        """Raises NOT_LEADER, NO_LEADER; what else is wrong is the answer."""
        with self.store.deciding() as state:
            pass
        try:
            result = self._move(request.source, request.worker, state)
        except ShardmergeError as error:
            result = failed(request.source, request.worker, error)
        return pb.TransferSourceResponse(result=result.result, msg=result.msg, sources=[result])

    def _move(self, source: str, name: str, state: State) -> pb.SourceResult:
        if _holds(source, name, state):
            return pb.SourceResult(result=True, msg=_THERE, source=source, worker=name)
        self._check(source, name, state)
        with self.store.deciding() as now:
            if _holds(source, name, now):
                return pb.SourceResult(result=True, msg=_THERE, source=source, worker=name)
            if now.bound_name(source) != state.bound_name(source):
                raise errors.master.CONFLICT(what=f"the binding of source {source}")
            before = now.bound_name(source)
            revision = self.store.place(Bind(source, name, before), now)
        [result] = self.waiter.taken_up([source], revision)
        if result.result and before:
            result.msg = f"it was at {before}, which removes its relay log of it once nothing of that is needed"
        return result

    def _check(self, source: str, name: str, state: State) -> None:
        """Whether ``name`` reaches the source, and gets there what only the relay log of now may still hold."""
        taker, settings = state.workers[name].value, state.sources[source].value.config
        check_answer(self.workers.check_source(taker, settings, self.check_seconds), source)
        holder = state.worker_of(source)
        if holder is None or not state.tasks_of(source):
            return  # nobody can be asked; the tasks say themselves what they lack
        told = self.workers.relay_needs(holder, source)
        if told.HasField("needed"):
            request = worker_pb2.CheckMoveRequest(source=settings, needed=told.needed)
            self.workers.check_move(taker, request, self.check_seconds)


def _holds(source: str, name: str, state: State) -> bool:
    """Whether ``name`` has the source already. Raises SOURCE_UNKNOWN, SOURCE_DISABLED, WORKER_UNKNOWN,
    WORKER_NOT_FREE."""
    if source not in state.sources:
        raise errors.master.SOURCE_UNKNOWN(source=source)
    if source not in state.enabled():
        raise errors.master.SOURCE_DISABLED(source=source)
    if name not in state.workers:
        raise errors.master.WORKER_UNKNOWN(worker=name)
    held = state.source_of(name)
    if held not in ("", source):
        raise errors.master.WORKER_NOT_FREE(worker=name, source=held)
    return held == source
