"""transfer-source: another worker takes over a source while its tasks run.

It is safe at any time, for the same reasons as the death of a worker: the binding is one record, and the new worker's
epochs fence the old one's lanes (I3). The command first checks that the new worker can fetch what the tasks still need:
the relay log stays at the old worker. It is the only one that shows whether the source's binlog is still the one that
was read.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.master.commands.source.update import OF_FORMER_LOG, check_answer
from shardmerge.master.placement import Bind
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.wait import Waiter, failed
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto

_THERE = "the worker holds it already"


@dataclass(frozen=True, slots=True)
class TransferCommand:
    store: Store
    workers: Workers
    waiter: Waiter
    check_seconds: float

    def transfer(self, request: pb.TransferSourceRequest) -> pb.TransferSourceResponse:
        """Raises NOT_LEADER, NO_LEADER; the answer reports any other error."""
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
        [result] = self.waiter.wait_bound([source], revision)
        if result.result and before:
            result.msg = f"it was at {before}, which removes its relay log of the source once no task needs it"
        return result

    def _check(self, source: str, name: str, state: State) -> None:
        """Check that ``name`` reaches the source, and that the source still has what the current relay log holds for
        tasks."""
        new_worker, settings = state.workers[name].value, state.sources[source].value.config
        check_answer(self.workers.check_source(new_worker, settings, self.check_seconds), source)
        holder = state.worker_of(source)
        if holder is None or not state.tasks_of(source):
            return  # no worker can be asked; the tasks report themselves what they lack
        failure = relay_loss(source, self.workers.status(holder))
        if failure is not None:
            raise failure
        needs = self.workers.relay_needs(holder, source)
        if needs.HasField("needed"):
            request = worker_pb2.CheckMoveRequest(source=settings, needed=needs.needed)
            self.workers.call(new_worker, lambda stub: stub.CheckMove, request, self.check_seconds)


def relay_loss(source: str, status: worker_pb2.WorkerStatusResponse) -> ShardmergeError | None:
    """MOVE_AFTER_LOSS if the relay has found that the source does not continue its log, which only this log shows; else
    None. Pure."""
    error = status.relay.result
    if status.source != source or error.code not in OF_FORMER_LOG:
        return None
    # The way out in a task's error takes into account whose rows are at its target.
    of_tasks = [one for task in status.subtasks for one in task.result.errors if one.code == error.code]
    of_mixed_rows = (one for one in of_tasks if "mixed_rows" in one.args)
    return errors.relay.MOVE_AFTER_LOSS(
        source=source,
        worker=status.worker,
        error=error_from_proto(error),
        instruction=next(of_mixed_rows, error).workaround,
    )


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
