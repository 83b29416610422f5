"""binlog-schema list, update, delete: what is recorded of a shard table's structure, told or changed by its worker."""

from __future__ import annotations

from dataclasses import dataclass

from master.state import State
from master.store import Store
from master.workers import Workers
from proto import errors, worker_pb2
from proto import master_pb2 as pb
from proto.errors import ShardmergeError
from proto.rpc import error_to_proto


@dataclass(frozen=True, slots=True)
class Schemas:
    """``seconds``: longest wait for a worker."""

    store: Store
    workers: Workers
    seconds: float

    def operate(self, request: pb.OperateSchemaRequest) -> pb.OperateSchemaResponse:
        """What each source answers; each stands for itself. Raises BAD_REQUEST, TASK_UNKNOWN."""
        check(request)
        state = self.store.read()
        present = state.sources_of(request.task)
        if not present:
            raise errors.master.TASK_UNKNOWN(task=request.task)
        wanted = tuple(dict.fromkeys(request.sources)) or present
        answers = self.workers.for_each(wanted, lambda source: self._one(source, request, state))
        bad = next((one.msg for one in answers if not one.result), "")
        return pb.OperateSchemaResponse(result=not bad, msg=bad, sources=answers)

    def _one(self, source: str, request: pb.OperateSchemaRequest, state: State) -> pb.SourceSchema:
        name = state.bound_name(source)
        try:
            if (request.task, source) not in state.subtasks:
                raise errors.master.SUBTASK_UNKNOWN(task=request.task, source=source)
            holder = state.worker_of(source)
            if holder is None:
                raise errors.master.SOURCE_UNBOUND(source=source)
            asked = worker_pb2.WorkerSchemaRequest(
                op=request.op,
                task=request.task,
                source=source,
                database=request.database,
                table=request.table,
                schema=request.schema,
                from_source=request.from_source,
                from_target=request.from_target,
            )
            answer = self.workers.operate_schema(holder, asked, self.seconds)
        except ShardmergeError as error:
            return pb.SourceSchema(
                result=False, msg=str(error), source=source, worker=name, error=error_to_proto(error)
            )
        return pb.SourceSchema(
            result=True,
            msg=answer.schema,
            source=source,
            worker=name,
            target=answer.target,
            target_schema=answer.target_schema,
            note=answer.note,
        )


def check(request: pb.OperateSchemaRequest) -> None:
    """Whether it says one thing. Pure. Raises BAD_REQUEST."""
    if request.op == worker_pb2.SCHEMA_OP_UNSPECIFIED:
        raise errors.master.BAD_REQUEST(reason="binlog-schema: which operation?")
    if not request.task or not request.database or not request.table:
        raise errors.master.BAD_REQUEST(reason="binlog-schema: name the task, the database and the table")
    ways = sum((bool(request.schema.strip()), request.from_source, request.from_target))
    if request.op == worker_pb2.SCHEMA_OP_UPDATE and ways != 1:
        raise errors.master.BAD_REQUEST(
            reason="binlog-schema update: one of a CREATE TABLE, --from-source and --from-target"
        )
