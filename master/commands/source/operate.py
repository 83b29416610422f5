"""operate-source: create, update, show, stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.master.commands.each_source import check_decided, decided_for_each
from shardmerge.master.commands.source.update import SourceUpdateCommand, check_answer
from shardmerge.master.placement import free_workers
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.wait import Waiter, failed
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.config.source import SourceFile, parse_source, parse_source_file
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc.coded_errors import error_from_proto, error_to_proto

_Request = pb.OperateSourceRequest
_UNCHECKED = (
    "the source is stored and not checked, for no worker answers; the first free worker takes and checks it: "
    "operate-source show reports the result"
)
_WAITS = "bound to no worker: it waits for a free dm-worker, which checks it"
_UNBOUND = "the source is stored, but no worker is free to take it"
_START_ANOTHER = "start another dm-worker"
_DISABLED = "the source is stored; it is disabled, so no worker takes it"


@dataclass(frozen=True, slots=True)
class SourceCommands:
    store: Store
    workers: Workers
    waiter: Waiter
    check_seconds: float

    def operate(self, request: _Request) -> pb.OperateSourceResponse:
        changes: tuple[pb.SourceChange, ...] = ()
        match request.op:
            case _Request.OP_CREATE:
                results = decided_for_each(self.store, lambda: self._create(request))
            case _Request.OP_UPDATE:
                updates = SourceUpdateCommand(self.store, self.workers, self.waiter, self.check_seconds)
                self.store.check_leads()
                results, changes = updates.update(request)
                check_decided(results)
            case _Request.OP_STOP:
                results = decided_for_each(self.store, lambda: self._stop(request))
            case _Request.OP_SHOW:
                results = self._show(request)
            case _:
                raise errors.master.BAD_REQUEST(reason="operate-source: which operation?")
        bad = next((one.msg for one in results if not one.result), "")
        return pb.OperateSourceResponse(
            result=all(one.result for one in results),
            msg=bad,
            sources=results,
            changes=changes,
            dry_run=request.dry_run,
        )

    def _create(self, request: _Request) -> list[pb.SourceResult]:
        """Read all files before anything is stored; then each source succeeds or fails by itself."""
        if not request.files:
            raise errors.master.BAD_REQUEST(reason="operate-source create: give a source file")
        if request.worker and len(request.files) > 1:
            raise errors.master.BAD_REQUEST(reason="a worker holds one source: give one file with --worker")
        files = [parse_source_file(file.content, file.name) for file in request.files]
        configs = [file.config for file in files]
        if request.worker and configs[0].disabled:
            raise errors.master.BAD_REQUEST(reason="a disabled source is bound to no worker: leave --worker out")
        return [
            self._create_one(sent.name, one, request.worker) for sent, one in zip(request.files, files, strict=True)
        ]

    def _create_one(self, name: str, file: SourceFile, wanted: str) -> pb.SourceResult:
        source = file.config
        source_id = source.source_id
        try:
            with self.store.deciding() as state:
                checkers = _checkers(source_id, wanted, state)
            checked = self._check(checkers, source, wanted)
            with self.store.deciding() as state:
                _refuse_known(source_id, state)
                free = next(iter(_free(state)), "") if checked else ""
                holder = "" if source.disabled else wanted or free
                if wanted:
                    _refuse_busy(wanted, state)
                revision = self.store.add_source(source, holder, name, file.text)
        except ShardmergeError as error:
            return failed(source_id, wanted, error)
        if not holder:
            bound = f"{_UNBOUND}; {_starting(state) or _START_ANOTHER}" if checked else _UNCHECKED
            return pb.SourceResult(result=True, msg=_DISABLED if source.disabled else bound, source=source_id)
        return self.waiter.wait_bound([source_id], revision)[0]

    def _check(self, checkers: Sequence[state_pb.WorkerRecord], source: config.SourceConfig, wanted: str) -> bool:
        """Let the first worker that answers check the source; False when none does. A worker that was killed is
        registered until its lease ends. Raises SOURCE_CHECK_FAILED, and errors of a worker that answers or is
        ``wanted``."""
        for checker in checkers:
            try:
                answer = self.workers.check_source(checker, source, self.check_seconds)
            except ShardmergeError as error:
                if wanted or error.spec is not errors.master.PEER_UNREACHABLE:
                    raise
                get_logger().warning("a worker cannot check the source", source=source.source_id, error=str(error))
            else:
                check_answer(answer, source.source_id, is_new=True)
                return True
        return False

    def _stop(self, request: _Request) -> list[pb.SourceResult]:
        named = _named(request)
        if not named:
            raise errors.master.BAD_REQUEST(reason="operate-source stop: name a source or its file")
        return [self._stop_one(source_id) for source_id in dict.fromkeys(named)]

    def _stop_one(self, source_id: str) -> pb.SourceResult:
        holder = ""
        try:
            with self.store.deciding() as state:
                if source_id not in state.sources:
                    raise errors.master.SOURCE_UNKNOWN(source=source_id)
                holder = state.bound_name(source_id)
                tasks = state.tasks_of(source_id)
                if tasks:
                    raise errors.master.SOURCE_IN_USE(source=source_id, tasks=", ".join(tasks))
                revision = self.store.drop_source(source_id, state)
        except ShardmergeError as error:
            return failed(source_id, holder, error)
        return self.waiter.wait_released(source_id, holder, revision)

    def _show(self, request: _Request) -> list[pb.SourceResult]:
        named = _named(request)
        state = self.store.read()
        return self.workers.for_each(named or sorted(state.sources), lambda source_id: self._shown(source_id, state))

    def _shown(self, source_id: str, state: State) -> pb.SourceResult:
        """The source's worker, and what prevents the use of the source."""
        if source_id not in state.sources:
            return failed(source_id, "", errors.master.SOURCE_UNKNOWN(source=source_id))
        name = state.bound_name(source_id)
        shown = pb.SourceResult(result=True, source=source_id, worker=name)
        holder = state.worker_of(source_id)
        if source_id not in state.enabled():
            shown.msg = "disabled"
        elif holder is None:
            starting = _starting(state)
            shown.msg = f"worker {name} is offline" if name else f"{_WAITS}; {starting}" if starting else _WAITS
        else:
            self._add_error(shown, holder)
        return shown

    def _add_error(self, shown: pb.SourceResult, holder: state_pb.WorkerRecord) -> None:
        try:
            status = self.workers.status(holder)
        except ShardmergeError as error:
            shown.msg = str(error)
            shown.error.CopyFrom(error_to_proto(error))
            return
        if status.source == shown.source and status.HasField("source_error"):
            shown.msg = str(error_from_proto(status.source_error))
            shown.error.CopyFrom(status.source_error)


def _checkers(source_id: str, wanted: str, state: State) -> Sequence[state_pb.WorkerRecord]:
    """The workers that may check a new source, best first: the one requested for it, else the free ones, else any."""
    _refuse_known(source_id, state)
    if wanted:
        _refuse_busy(wanted, state)
        return (state.workers[wanted].value,)
    free = _free(state)
    return [state.workers[name].value for name in (*free, *sorted(state.workers.keys() - set(free)))]


def _refuse_known(source_id: str, state: State) -> None:
    if source_id in state.sources:
        raise errors.master.SOURCE_EXISTS(source=source_id)


def _refuse_busy(worker: str, state: State) -> None:
    if worker not in state.workers:
        raise errors.master.WORKER_UNKNOWN(worker=worker)
    held = state.source_of(worker)
    if held:
        raise errors.master.WORKER_NOT_FREE(worker=worker, source=held)


def _starting(state: State) -> str:
    """Which workers start, and may therefore soon be free; "" if none does."""
    names = ", ".join(sorted(state.starting))
    return f"these workers are starting: {names}" if names else ""


def _free(state: State) -> tuple[str, ...]:
    return free_workers(frozenset(state.workers), state.bindings())


def _named(request: _Request) -> list[str]:
    """The requested sources, by their files or ids. Only the id of a file counts: no reference is resolved."""
    return [*(parse_source(file.content, file.name, None).source_id for file in request.files), *request.source_ids]
