"""binlog skip, replace, inject, revert, list: an operator's override for one statement of a source's binlog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.master.commands.each_source import decided_for_each
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import STATUS_SECONDS, Workers
from shardmerge.master.workers.wait import failed
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.binlog_place import parse_binlog_place
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger

log = get_logger()

_Op = pb.HandleBinlogRequest
_KINDS = {
    _Op.OP_SKIP: state_pb.BinlogOp.KIND_SKIP,
    _Op.OP_REPLACE: state_pb.BinlogOp.KIND_REPLACE,
    _Op.OP_INJECT: state_pb.BinlogOp.KIND_INJECT,
}
_OP_NAMES = {kind: _Op.Op.Name(op).removeprefix("OP_").lower() for op, kind in _KINDS.items()}
_STATEMENTS = errors.ddl.STATEMENT_UNKNOWN.error_class
_MAX_OVERRIDES = 100
"""The most overrides per subtask: they are read with every read of the records."""


@dataclass(frozen=True, slots=True)
class StatementPosition:
    """A position in a source's binlog. ``pos``: a byte of the statement's event group."""

    file: str
    pos: int

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


def given_place(text: str) -> StatementPosition:
    """Parse a position as :func:`parse_binlog_place` does. Raises BAD_REQUEST."""
    found = parse_binlog_place(text)
    if found is None:
        raise errors.master.BAD_REQUEST(reason=f"{text!r} is not a binlog position: give file:position")
    return StatementPosition(*found)


def place_note(place: StatementPosition, relay: worker_pb2.RelayStatus | None) -> str:
    """Why the source has no statement at ``place`` now, as far as is known; "": it may have one. Pure. ``relay``: None:
    the worker does not answer. An override may be given ahead, so this is no error."""
    ends = () if relay is None else (relay.master_binlog, relay.relay_binlog)
    known = [StatementPosition(*found) for found in map(parse_binlog_place, ends) if found is not None]
    if not known:
        return "it is unknown whether the source has this position: its worker does not know the end of the binlog"
    end = max(known, key=lambda one: (_number(one), one.pos))
    if all(_base(place) != _base(one) for one in known):
        return f"the source has no such file, its binlog ends at {end}: without a statement there this has no effect"
    if (_number(place), place.pos) >= (_number(end), end.pos):
        return (
            f"past the end of the source's binlog, {end}: this concerns a statement only if it is written there later"
        )
    return ""


def _base(place: StatementPosition) -> str:
    return place.file.rpartition(".")[0]


def _number(place: StatementPosition) -> int:
    digits = place.file.rpartition(".")[2]
    return int(digits) if digits.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class BinlogCommand:
    store: Store
    workers: Workers

    def handle(self, request: pb.HandleBinlogRequest) -> pb.HandleBinlogResponse:
        """Raises BAD_REQUEST, TASK_UNKNOWN, NOT_LEADER, NO_LEADER; an error of one source is in that source's
        answer."""
        kind = _KINDS.get(request.op)
        if request.op == _Op.OP_UNSPECIFIED:
            raise errors.master.BAD_REQUEST(reason="binlog: which operation?")
        if request.op in (_Op.OP_REPLACE, _Op.OP_INJECT) and not request.sqls.strip():
            raise errors.master.BAD_REQUEST(reason="binlog: with which statements?")
        state = self.store.read()
        present = state.known_sources(request.task)
        if request.op == _Op.OP_LIST:
            return self._listed(request, present, state)
        results = decided_for_each(self.store, lambda: self._each(request, kind, present, state))
        # As in DM, a source that has no error is false, and the answer as a whole is not.
        no_error = errors.master.BINLOG_NO_ERROR.code
        bad = next((one.msg for one in results if not one.result and one.error.code != no_error), "")
        stored = [one.source for one in results if one.result]
        if not bad and kind is not None and request.binlog_pos and not request.sources and len(stored) > 1:
            revert = f"`dmctl binlog revert {request.task} -b '{request.binlog_pos}' -s SOURCE`"
            note = f"stored for {len(stored)} sources, because no -s names one; {revert} removes it from one"
            return pb.HandleBinlogResponse(result=True, msg=note, sources=results)
        return pb.HandleBinlogResponse(result=not bad, msg=bad, sources=results)

    def _each(
        self,
        request: pb.HandleBinlogRequest,
        kind: state_pb.BinlogOp.Kind | None,
        present: Sequence[str],
        state: State,
    ) -> list[pb.SourceResult]:
        wanted = [source for source in present if not request.sources or source in request.sources]
        results = [
            failed(source, "", errors.master.SUBTASK_UNKNOWN(task=request.task, source=source))
            for source in sorted(set(request.sources) - set(present))
        ]
        for source in wanted:
            try:
                results.append(self._one(request, kind, source, state))
            except ShardmergeError as error:
                results.append(failed(source, state.bound_name(source), error))
        return results

    def _one(
        self, request: pb.HandleBinlogRequest, kind: state_pb.BinlogOp.Kind | None, source: str, state: State
    ) -> pb.SourceResult:
        place = given_place(request.binlog_pos) if request.binlog_pos else self._stopped_at(request.task, source, state)
        if place is None:
            raise errors.master.BINLOG_NO_ERROR(task=request.task, source=source)
        self.override(request.task, source, place, kind, request.sqls.strip(), state)
        name = _OP_NAMES[kind] if kind is not None else "revert"
        note = place_note(place, self._relay(source, state)) if request.binlog_pos and kind is not None else ""
        text = f"{name} at {place}" + (f"; warning: {note}" if note else "")
        return pb.SourceResult(result=True, msg=text, source=source, worker=state.bound_name(source))

    def _relay(self, source: str, state: State) -> worker_pb2.RelayStatus | None:
        try:
            return self.workers.status(state.holder_of(source)).relay
        except ShardmergeError:
            return None

    def override(
        self,
        task: str,
        source: str,
        place: StatementPosition,
        kind: state_pb.BinlogOp.Kind | None,
        statements: str,
        state: State,
    ) -> None:
        """Record the override of the statement at ``place``; ``kind`` None: remove it. Raises SUBTASK_UNKNOWN,
        BINLOG_NOTHING_SAID."""
        server = self._server(task, source, state)
        with self.store.deciding() as now:
            entry = now.subtasks.get((task, source))
            if entry is None:
                raise errors.master.SUBTASK_UNKNOWN(task=task, source=source)
            record = state_pb.SubTaskRecord()
            record.CopyFrom(entry.value)
            left = [
                op
                for op in record.binlog_ops
                if (op.file, op.pos) != (place.file, place.pos) or (kind is not None and op.server not in ("", server))
            ]
            if kind is None and len(left) == len(record.binlog_ops):
                raise errors.master.BINLOG_NOTHING_SAID(task=task, source=source, position=place)
            if kind is not None:
                left.append(
                    state_pb.BinlogOp(kind=kind, file=place.file, pos=place.pos, statements=statements, server=server)
                )
            del record.binlog_ops[:]
            record.binlog_ops.extend(left[-_MAX_OVERRIDES:])
            self.store.record_binlog_op(record, now)
        name = _OP_NAMES[kind] if kind is not None else "revert"
        log.info("operator on the binlog", task=task, source=source, op=name, place=str(place))

    def _server(self, task: str, source: str, state: State) -> str:
        """The server whose binlog a position of now refers to: the one the task reads next; "" when it is unknown."""
        worker = state.worker_of(source)
        try:
            found = self.workers.status(worker, task).subtasks if worker is not None else ()
        except ShardmergeError:
            return ""
        return next((one.sync.next_server for one in found if one.name == task), "")

    def _stopped_at(self, task: str, source: str, state: State) -> StatementPosition | None:
        """The position in the error that has paused the subtask; None: no error names one."""
        worker = state.holder_of(source)
        for subtask in self.workers.status(worker, task).subtasks:
            for error in subtask.result.errors:
                found = parse_binlog_place(error.args.get("position", ""))
                if found is None:
                    continue
                place = StatementPosition(*found)
                if error.error_class != _STATEMENTS:
                    # A skip loses rows: the operator must name them explicitly.
                    raise errors.master.BINLOG_NAME_PLACE(task=task, source=source, place=place, error=error.message)
                return place
        return None

    def _listed(self, request: pb.HandleBinlogRequest, present: Sequence[str], state: State) -> pb.HandleBinlogResponse:
        """The overrides, and the rows that were skipped; these are recorded at the target, and shown only if it
        answers."""
        place = given_place(request.binlog_pos) if request.binlog_pos else None
        wanted = [source for source in present if not request.sources or source in request.sources]
        found = [
            pb.HandledBinlog(
                source=source,
                op=_OP_NAMES[op.kind],
                binlog_pos=str(StatementPosition(op.file, op.pos)),
                sqls=op.statements,
            )
            for source in wanted
            for op in state.subtasks[request.task, source].value.binlog_ops
            if place is None or place == StatementPosition(op.file, op.pos)
        ]
        answer = pb.HandleBinlogResponse(result=True, ops=found)
        for source in wanted:
            try:
                skipped = self._skipped(request.task, source, place, state)
            except ShardmergeError as error:
                answer.msg = f"it is unknown which rows of {source} were skipped: {error}"
                continue
            answer.skipped.extend(skipped.changes)
            answer.total_skipped += skipped.total
        if not answer.msg and not found and not answer.skipped:
            answer.msg = "there are no overrides"
        return answer

    def _skipped(
        self, task: str, source: str, place: StatementPosition | None, state: State
    ) -> worker_pb2.WorkerSkippedResponse:
        worker = state.holder_of(source)
        request = worker_pb2.WorkerSkippedRequest(subtask=state.subtasks[task, source].value.config)
        if place is not None:
            request.file, request.pos = place.file, place.pos
        return self.workers.call(worker, lambda stub: stub.ListSkipped, request, STATUS_SECONDS)
