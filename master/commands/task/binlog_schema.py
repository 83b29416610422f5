"""binlog-schema list, update, delete: a shard table's recorded structure, shown or changed by its worker."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto


@dataclass(frozen=True, slots=True)
class SchemaCommand:
    """``seconds``: longest wait for a worker."""

    store: Store
    workers: Workers
    seconds: float

    def operate(self, request: pb.OperateSchemaRequest) -> pb.OperateSchemaResponse:
        """The answer of each source; each succeeds or fails by itself. Raises BAD_REQUEST, TASK_UNKNOWN."""
        check(request)
        state = self.store.read()
        present = state.known_sources(request.task)
        wanted = tuple(dict.fromkeys(request.sources)) or present
        answers = self.workers.for_each(wanted, lambda source: self._one(source, request, state))
        bad = next((one.msg for one in answers if not one.result), "")
        return pb.OperateSchemaResponse(result=not bad, msg=bad, sources=answers)

    def _one(self, source: str, request: pb.OperateSchemaRequest, state: State) -> pb.SourceSchema:
        name = state.bound_name(source)
        try:
            if (request.task, source) not in state.subtasks:
                raise errors.master.SUBTASK_UNKNOWN(task=request.task, source=source)
            holder = state.holder_of(source)
            worker_request = worker_pb2.WorkerSchemaRequest(
                op=request.op,
                task=request.task,
                source=source,
                database=request.database,
                table=request.table,
                schema=request.schema,
                from_source=request.from_source,
                from_target=request.from_target,
            )
            answer = self.workers.call(holder, lambda stub: stub.OperateSchema, worker_request, self.seconds)
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
    """Check that the request is complete and unambiguous. Pure. Raises BAD_REQUEST."""
    if request.op == worker_pb2.SCHEMA_OP_UNSPECIFIED:
        raise errors.master.BAD_REQUEST(reason="binlog-schema: which operation?")
    if not request.task or not request.database or not request.table:
        raise errors.master.BAD_REQUEST(reason="binlog-schema: name the task, the database and the table")
    ways = sum((bool(request.schema.strip()), request.from_source, request.from_target))
    if request.op == worker_pb2.SCHEMA_OP_UPDATE and ways != 1:
        raise errors.master.BAD_REQUEST(
            reason="binlog-schema update: one of a CREATE TABLE, --from-source and --from-target"
        )
