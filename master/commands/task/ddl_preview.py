"""shard-ddl preview: asks a worker what effect a statement on shard tables would have. Nothing is decided or stored."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.master.ddl_lock.records import shard_mode_name
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors, state_pb2, worker_pb2
from shardmerge.proto import master_pb2 as pb


@dataclass(frozen=True, slots=True)
class PreviewCommand:
    """``seconds``: longest wait for the worker."""

    store: Store
    workers: Workers
    seconds: float

    def preview(self, request: pb.PreviewDDLRequest) -> pb.PreviewDDLResponse:
        """Raises TASK_UNKNOWN, SUBTASK_UNKNOWN, SOURCE_UNBOUND, and what the worker answers."""
        state = self.store.read()
        worker, subtask = pick_worker(request, state)
        found = self.workers.call(
            worker,
            lambda stub: stub.PreviewDDL,
            worker_pb2.WorkerPreviewDDLRequest(
                subtask=subtask,
                task_sources=state.sources_of(request.task),
                statement=request.statement,
                tables=request.tables,
                sources=request.sources,
            ),
            self.seconds,
        )
        return pb.PreviewDDLResponse(result=True, mode=shard_mode_name(subtask), tables=found.tables)


def pick_worker(request: pb.PreviewDDLRequest, state: State) -> tuple[state_pb2.WorkerRecord, config.SubTaskConfig]:
    """The worker that answers: any of the task's, as everything is recorded at the target. Pure. Raises what
    :meth:`PreviewCommand.preview` does."""
    state.selected_sources(request.task, request.sources)
    sources = state.sources_of(request.task)
    for source in sources:
        worker = state.worker_of(source)
        if worker is not None:
            return worker, state.subtasks[request.task, source].value.config
    raise errors.master.SOURCE_UNBOUND(source=", ".join(sources))
