"""start-, stop-, pause- and resume-relay, which are stored, and purge-relay, which only calls each source's worker."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.master.commands.each_source import decided_for_each
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import PURGE_SECONDS, Workers
from shardmerge.master.workers.pause_limits import pause_limits
from shardmerge.master.workers.wait import Waiter, failed
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto import worker_pb2 as worker
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto

_Op = pb.OperateRelayRequest
_ON = "the relay log is always on: nothing was started"
_PAUSED = "nothing more is fetched; tasks apply what the relay log holds"
_RESUMED = "the relay fetches again"
_NOT_PAUSED = (
    "the relay was not paused: if an error has stopped it, correct the error, then `dmctl resume-task` for its tasks"
)
_LATER = "stored; no live worker holds the source now"


@dataclass(frozen=True, slots=True)
class RelayCommands:
    store: Store
    workers: Workers
    waiter: Waiter

    def operate(self, request: pb.OperateRelayRequest) -> pb.OperateRelayResponse:
        """Each source succeeds or fails by itself. Raises BAD_REQUEST, NOT_LEADER, NO_LEADER."""
        if not request.sources or request.op == _Op.OP_UNSPECIFIED:
            raise errors.master.BAD_REQUEST(reason="relay: which operation, and on which source?")
        sources = tuple(dict.fromkeys(request.sources))

        def decide() -> list[pb.SourceResult]:
            return self.workers.for_each(sources, lambda source: self._operate_one(source, request.op))

        results = decided_for_each(self.store, decide)
        bad = next((one.msg for one in results if not one.result), "")
        paused = [one.source for one in results if one.result and request.op == _Op.OP_PAUSE]
        limits = pause_limits(paused, self.store.read, self.workers, lambda relay: relay.relay_pause)
        return pb.OperateRelayResponse(result=not bad, msg=bad, sources=results, pause_limits=limits)

    def _operate_one(self, source: str, op: pb.OperateRelayRequest.Op) -> pb.SourceResult:
        holder = ""
        try:
            with self.store.deciding() as state:
                entry = state.sources.get(source)
                if entry is None:
                    raise errors.master.SOURCE_UNKNOWN(source=source)
                if op == _Op.OP_STOP:
                    raise errors.master.RELAY_ALWAYS_ON(source=source)
                holder = state.bound_name(source)
                pause = op == _Op.OP_PAUSE
                revision = state.revision
                was_paused = entry.value.relay_paused
                if entry.value.relay_paused != pause:
                    record = state_pb.SourceRecord()
                    record.CopyFrom(entry.value)
                    record.relay_paused = pause
                    revision = self.store.update_source(record, (), "", state)
                elif op == _Op.OP_START:
                    return pb.SourceResult(result=True, msg=_ON, source=source, worker=holder)
                reachable = state.worker_of(source) is not None
        except ShardmergeError as error:
            return failed(source, holder, error)
        if not reachable:
            return pb.SourceResult(result=True, msg=_LATER, source=source, worker=holder)
        [result] = self.waiter.wait_bound([source], revision)
        if result.result:
            result.msg = _PAUSED if pause else _RESUMED if was_paused else _NOT_PAUSED
        return result

    def purge(self, request: pb.PurgeRelayRequest) -> pb.PurgeRelayResponse:
        """What was removed at each source; each succeeds or fails by itself. Raises BAD_REQUEST without sources or
        file."""
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
            holder = state.holder_of(source)
            purge_request = worker.WorkerPurgeRelayRequest(
                source=source, filename=request.filename, sub_dir=request.sub_dir
            )
            answer = self.workers.call(holder, lambda stub: stub.PurgeRelay, purge_request, PURGE_SECONDS)
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
