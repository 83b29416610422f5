"""shard-ddl preview: asks a worker what a statement on shard tables would come to. Nothing is decided or stored."""

from __future__ import annotations

from dataclasses import dataclass

from master.state import State
from master.store import Store
from master.workers import Workers
from proto import config_pb2 as config
from proto import errors, state_pb2, worker_pb2
from proto import master_pb2 as pb

_MODES = {
    config.SHARD_MODE_NONE: "none",
    config.SHARD_MODE_PESSIMISTIC: "pessimistic",
    config.SHARD_MODE_OPTIMISTIC: "optimistic",
}


@dataclass(frozen=True, slots=True)
class DdlPreviews:
    """``seconds``: longest wait for the worker."""

    store: Store
    workers: Workers
    seconds: float

    def preview(self, request: pb.PreviewDDLRequest) -> pb.PreviewDDLResponse:
        """Raises TASK_UNKNOWN, SUBTASK_UNKNOWN, SOURCE_UNBOUND, and what the worker answers."""
        state = self.store.read()
        worker, subtask = asked(request, state)
        found = self.workers.preview_ddl(
            worker,
            worker_pb2.WorkerPreviewDDLRequest(
                subtask=subtask,
                task_sources=state.sources_of(request.task),
                statement=request.statement,
                tables=request.tables,
                sources=request.sources,
            ),
            self.seconds,
        )
        return pb.PreviewDDLResponse(result=True, mode=_MODES[subtask.shard_mode], tables=found.tables)


def asked(request: pb.PreviewDDLRequest, state: State) -> tuple[state_pb2.WorkerRecord, config.SubTaskConfig]:
    """Who answers: any of the task's workers, for all is recorded at the target. Pure. Raises as
    :meth:`DdlPreviews.preview`."""
    sources = state.sources_of(request.task)
    if not sources:
        raise errors.master.TASK_UNKNOWN(task=request.task)
    for source in request.sources:
        if source not in sources:
            raise errors.master.SUBTASK_UNKNOWN(task=request.task, source=source)
    for source in sources:
        worker = state.worker_of(source)
        if worker is not None:
            return worker, state.subtasks[request.task, source].value.config
    raise errors.master.SOURCE_UNBOUND(source=", ".join(sources))
