"""quarantine list, retry, drop: calls the worker of each source; nothing is stored in etcd."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.wait import failed
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger

log = get_logger()

SECONDS = 300.0
"""The longest wait for a worker: held changes of thousands of keys are one transaction."""


@dataclass(frozen=True, slots=True)
class QuarantineCommand:
    store: Store
    workers: Workers

    def operate(self, request: pb.QuarantineRequest) -> pb.QuarantineResponse:
        """The result at each source; each succeeds or fails by itself. Raises BAD_REQUEST, TASK_UNKNOWN,
        SUBTASK_UNKNOWN."""
        if request.op == worker_pb2.QUARANTINE_OP_UNSPECIFIED:
            raise errors.master.BAD_REQUEST(reason="quarantine: which operation?")
        state = self.store.read()
        wanted = state.selected_sources(request.task, request.sources)
        answer = pb.QuarantineResponse()
        for result, found in self.workers.for_each(wanted, lambda source: self._one(source, request, state)):
            answer.sources.append(result)
            answer.keys.extend(found.keys)
            answer.total_keys += found.total_keys
        refused = request.op == worker_pb2.QUARANTINE_OP_RETRY and answer.total_keys > 0
        bad = next((one.msg for one in answer.sources if not one.result), "")
        answer.result = not bad and not refused
        answer.msg = bad or (f"{answer.total_keys} key(s) were refused again" if refused else "")
        return answer

    def _one(
        self, source: str, request: pb.QuarantineRequest, state: State
    ) -> tuple[pb.SourceResult, worker_pb2.WorkerQuarantineResponse]:
        try:
            worker = state.holder_of(source)
            worker_request = worker_pb2.WorkerQuarantineRequest(
                subtask=state.subtasks[request.task, source].value.config,
                op=request.op,
                table=request.table,
                key=request.key,
            )
            found = self.workers.call(worker, lambda stub: stub.Quarantine, worker_request, SECONDS)
        except ShardmergeError as error:
            return failed(source, state.bound_name(source), error), worker_pb2.WorkerQuarantineResponse()
        text = _RESULTS[request.op].format(keys=found.done_keys, changes=found.done_changes, held=found.total_keys)
        if request.op != worker_pb2.QUARANTINE_OP_LIST:
            log.info("operator on the quarantine", task=request.task, source=source, said=text)
        return pb.SourceResult(result=True, msg=text, source=source, worker=state.bound_name(source)), found


_RESULTS = {
    worker_pb2.QUARANTINE_OP_LIST: "{held} key(s) are held",
    worker_pb2.QUARANTINE_OP_RETRY: "{keys} key(s) applied, with {changes} change(s); {held} refused again",
    worker_pb2.QUARANTINE_OP_DROP: "{keys} key(s) dropped, with {changes} change(s)",
}
