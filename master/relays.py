"""purge-relay: asks the worker of each source; nothing of it is stored."""

from __future__ import annotations

from dataclasses import dataclass

from master.state import State
from master.store import Store
from master.workers import Workers
from proto import errors
from proto import master_pb2 as pb
from proto import worker_pb2 as worker
from proto.errors import ShardmergeError
from proto.rpc import error_to_proto


@dataclass(frozen=True, slots=True)
class Relays:
    store: Store
    workers: Workers

    def purge(self, request: pb.PurgeRelayRequest) -> pb.PurgeRelayResponse:
        """What went at each source; each stands for itself. Raises BAD_REQUEST without sources or file."""
        if not request.sources or not request.filename:
            raise errors.master.BAD_REQUEST(reason="purge-relay: name at least one source, and a binlog file")
        state = self.store.read()
        sources = tuple(dict.fromkeys(request.sources))
        answers = self.workers.for_each(sources, lambda source: self._one(source, request, state))
        bad = next((one.msg for one in answers if not one.result), "")
        return pb.PurgeRelayResponse(result=all(one.result for one in answers), msg=bad, sources=answers)

    def _one(self, source: str, request: pb.PurgeRelayRequest, state: State) -> pb.SourcePurge:
        name = state.bound_name(source)
        try:
            if source not in state.sources:
                raise errors.master.SOURCE_UNKNOWN(source=source)
            holder = state.worker_of(source)
            if holder is None:
                raise errors.master.SOURCE_UNBOUND(source=source)
            asked = worker.WorkerPurgeRelayRequest(source=source, filename=request.filename, sub_dir=request.sub_dir)
            answer = self.workers.purge_relay(holder, asked)
        except ShardmergeError as error:
            return pb.SourcePurge(result=False, msg=str(error), source=source, worker=name, error=error_to_proto(error))
        return pb.SourcePurge(
            result=True,
            source=source,
            worker=name,
            purged_segments=answer.purged_segments,
            purged_bytes=answer.purged_bytes,
            relay_begin=answer.relay_begin,
            kept=answer.kept,
        )
