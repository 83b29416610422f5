"""binlog skip, replace, inject, revert, list: an operator's word on one statement of a source's binlog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from master.stages import failed
from master.state import State
from master.store import Store
from master.workers import Workers
from proto import errors, worker_pb2
from proto import master_pb2 as pb
from proto import state_pb2 as state_pb
from proto.errors import ShardmergeError
from proto.log import get_logger

log = get_logger()

_GIVEN = re.compile(r"(?P<file>[^\s:|]+)[:|](?P<pos>\d+)")
_SHOWN = re.compile(r"\((?P<file>[^\s,()]+), (?P<pos>\d+)\)")
_Op = pb.HandleBinlogRequest
_KINDS = {
    _Op.OP_SKIP: state_pb.BinlogOp.KIND_SKIP,
    _Op.OP_REPLACE: state_pb.BinlogOp.KIND_REPLACE,
    _Op.OP_INJECT: state_pb.BinlogOp.KIND_INJECT,
}
_WORDS = {kind: _Op.Op.Name(op).removeprefix("OP_").lower() for op, kind in _KINDS.items()}
_STATEMENTS = errors.ddl.STATEMENT_UNKNOWN.error_class
_ENTRIES = 100
"""So many per subtask: they are read with every look at the records."""


@dataclass(frozen=True, slots=True)
class Place:
    """In a source's binlog. ``pos``: a byte of the statement's event group."""

    file: str
    pos: int

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


def given_place(text: str) -> Place:
    """Of "mysql-bin.000003:1234". Raises BAD_REQUEST."""
    match = _GIVEN.fullmatch(text.strip())
    if match is None:
        raise errors.master.BAD_REQUEST(reason=f"{text!r} is no place in a binlog: give file:position")
    return Place(match["file"], int(match["pos"]))


@dataclass(frozen=True, slots=True)
class BinlogOps:
    store: Store
    workers: Workers

    def handle(self, request: pb.HandleBinlogRequest) -> pb.HandleBinlogResponse:
        """Raises BAD_REQUEST, TASK_UNKNOWN; what is wrong with one source is that source's answer."""
        kind = _KINDS.get(request.op)
        if request.op == _Op.OP_UNSPECIFIED:
            raise errors.master.BAD_REQUEST(reason="binlog: which operation?")
        if request.op in (_Op.OP_REPLACE, _Op.OP_INJECT) and not request.sqls.strip():
            raise errors.master.BAD_REQUEST(reason="binlog: with which statements?")
        state = self.store.read()
        present = state.sources_of(request.task)
        if not present:
            raise errors.master.TASK_UNKNOWN(task=request.task)
        if request.op == _Op.OP_LIST:
            return self._listed(request, present, state)
        wanted = [source for source in present if not request.sources or source in request.sources]
        results = [
            failed(source, "", errors.master.SUBTASK_UNKNOWN(task=request.task, source=source))
            for source in sorted(set(request.sources) - set(present))
        ]
        # Without a place, the operator speaks of those that stand before something.
        everyone = not request.sources and not request.binlog_pos
        for source in wanted:
            try:
                results += self._one(request, kind, source, state, everyone=everyone)
            except ShardmergeError as error:
                results.append(failed(source, state.bound_name(source), error))
        if not results:
            raise errors.master.BINLOG_NO_ERROR(task=request.task, source=", ".join(wanted))
        bad = next((one.msg for one in results if not one.result), "")
        return pb.HandleBinlogResponse(result=not bad, msg=bad, sources=results)

    def _one(
        self,
        request: pb.HandleBinlogRequest,
        kind: state_pb.BinlogOp.Kind | None,
        source: str,
        state: State,
        *,
        everyone: bool,
    ) -> list[pb.SourceResult]:
        place = given_place(request.binlog_pos) if request.binlog_pos else self._stands_at(request.task, source, state)
        if place is None:
            if everyone:
                return []
            raise errors.master.BINLOG_NO_ERROR(task=request.task, source=source)
        server = self._server(request.task, source, state)
        with self.store.deciding() as now:
            entry = now.subtasks.get((request.task, source))
            if entry is None:
                raise errors.master.SUBTASK_UNKNOWN(task=request.task, source=source)
            record = state_pb.SubTaskRecord()
            record.CopyFrom(entry.value)
            left = [
                op
                for op in record.binlog_ops
                if (op.file, op.pos) != (place.file, place.pos) or (kind is not None and op.server not in ("", server))
            ]
            if kind is None and len(left) == len(record.binlog_ops):
                raise errors.master.BINLOG_NOTHING_SAID(task=request.task, source=source, position=place)
            if kind is not None:
                left.append(
                    state_pb.BinlogOp(
                        kind=kind,
                        file=place.file,
                        pos=place.pos,
                        statements=request.sqls.strip(),
                        server=server,
                    )
                )
            del record.binlog_ops[:]
            record.binlog_ops.extend(left[-_ENTRIES:])
            self.store.say_of_binlog(record, now)
        word = _WORDS[kind] if kind is not None else "revert"
        log.info("operator on the binlog", task=request.task, source=source, op=word, place=str(place))
        return [pb.SourceResult(result=True, msg=f"{word} at {place}", source=source, worker=state.bound_name(source))]

    def _server(self, task: str, source: str, state: State) -> str:
        """Whose binlog a place of now is meant in: that which the task reads next; "" when nobody can tell."""
        worker = state.worker_of(source)
        try:
            found = self.workers.status(worker, task).subtasks if worker is not None else ()
        except ShardmergeError:
            return ""
        return next((one.sync.next_server for one in found if one.name == task), "")

    def _stands_at(self, task: str, source: str, state: State) -> Place | None:
        """The place of the error that has paused the subtask; None: no error names one."""
        worker = state.worker_of(source)
        if worker is None:
            raise errors.master.SOURCE_UNBOUND(source=source)
        for subtask in self.workers.status(worker, task).subtasks:
            for error in subtask.result.errors:
                match = _SHOWN.fullmatch(error.args.get("position", ""))
                if match is None:
                    continue
                place = Place(match["file"], int(match["pos"]))
                if error.error_class != _STATEMENTS:
                    # Rows are lost by a skip: nobody is to lose any without having named them.
                    raise errors.master.BINLOG_NAME_PLACE(task=task, source=source, place=place, error=error.message)
                return place
        return None

    def _listed(self, request: pb.HandleBinlogRequest, present: Sequence[str], state: State) -> pb.HandleBinlogResponse:
        """What was said, and which rows were passed over; these are at the target, and only shown if it answers."""
        place = given_place(request.binlog_pos) if request.binlog_pos else None
        wanted = [source for source in present if not request.sources or source in request.sources]
        found = [
            pb.HandledBinlog(
                source=source, op=_WORDS[op.kind], binlog_pos=str(Place(op.file, op.pos)), sqls=op.statements
            )
            for source in wanted
            for op in state.subtasks[request.task, source].value.binlog_ops
            if place is None or place == Place(op.file, op.pos)
        ]
        answer = pb.HandleBinlogResponse(result=True, ops=found)
        for source in wanted:
            try:
                skipped = self._skipped(request.task, source, place, state)
            except ShardmergeError as error:
                answer.msg = f"which rows of {source} were skipped is not known: {error}"
                continue
            answer.skipped.extend(skipped.changes)
            answer.total_skipped += skipped.total
        if not answer.msg and not found and not answer.skipped:
            answer.msg = "nothing has been said"
        return answer

    def _skipped(self, task: str, source: str, place: Place | None, state: State) -> worker_pb2.WorkerSkippedResponse:
        worker = state.worker_of(source)
        if worker is None:
            raise errors.master.SOURCE_UNBOUND(source=source)
        request = worker_pb2.WorkerSkippedRequest(subtask=state.subtasks[task, source].value.config)
        if place is not None:
            request.file, request.pos = place.file, place.pos
        return self.workers.skipped(worker, request)
