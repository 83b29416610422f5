"""Events of subtasks, of their lanes and of the relay log for the histories of tasks. Nothing here waits or raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.proto import common_pb2 as pb
from shardmerge.proto import relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.proto.task_history.event import Event, History, HistoryEntryKind
from shardmerge.worker.unit.run_reports import DdlOutcome

_MOST_TARGETS = 3
AS_DECIDED = "as decided"
AUTOMATIC = "automatic resume"
LEASE_BACK = "the worker holds its lease again"
LEASE_LOST = "the worker has lost its lease"
AGAIN = "to start again as decided"
REMOVED = "the task is stopped on this source"
RELEASED = "the worker ends, or releases the source"
_Lane = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class SubTaskHistory:
    history: History
    task: str
    source: str

    def decided(self) -> None:
        """Something was decided about the subtask: what follows repeats nothing."""
        self.history.separate(self.task, self.source)

    def stage(self, before: pb.Stage, after: pb.Stage, cause: str, epoch: int) -> None:
        text = f"{_word(before)} → {_word(after)}" + (f": {cause}" if cause else "")
        self._add(HistoryEntryKind.STAGE, text, same=text, stage=_word(after), epoch=epoch)

    def failed(self, before: pb.Stage, error: ShardmergeError, epoch: int, *, retries: bool) -> None:
        """A run has ended with an error: the subtask is paused."""
        self._add(
            HistoryEntryKind.ERROR,
            f"{_word(before)} → {_word(pb.STAGE_PAUSED)}" + (", automatic resume follows" if retries else ""),
            same=f"{error.code} {retries}",
            stage=_word(pb.STAGE_PAUSED),
            epoch=epoch,
            error=error,
        )

    def replicates(self, epoch: int) -> None:
        self._add(HistoryEntryKind.STAGE, "the tables are copied, replication begins", epoch=epoch)

    def tables(self, what: str, tables: Sequence[str], error: ShardmergeError | None, epoch: int) -> None:
        """What has become of the copy of tables in parallel with the subtask's unit."""
        self._add(
            HistoryEntryKind.STAGE if error is None else HistoryEntryKind.ERROR,
            f"{what}: {listed(tables, _MOST_TARGETS)}",
            same="" if error is None else f"{what} {error.code}",
            epoch=epoch,
            error=error,
        )

    def ddl(self, outcome: DdlOutcome, epoch: int) -> None:
        targets = listed(list(outcome.targets), _MOST_TARGETS)
        self.history.add(
            Event(
                self.task,
                HistoryEntryKind.DDL,
                time.time(),
                outcome.result,
                (self.source,),
                same="\n".join((targets, outcome.result, outcome.form)),
                epoch=epoch,
                statement=outcome.statement,
                target=targets,
                position=outcome.position,
            )
        )

    def _add(
        self,
        kind: HistoryEntryKind,
        text: str,
        *,
        same: str = "",
        stage: str = "",
        epoch: int,
        error: ShardmergeError | None = None,
    ) -> None:
        self.history.add(
            Event(
                self.task,
                kind,
                time.time(),
                text,
                (self.source,),
                same=same,
                stage=stage,
                epoch=epoch,
                code=0 if error is None else error.code,
                name="" if error is None else error.spec.name,
                message="" if error is None else error.message,
                position="" if error is None else error.values.get("position", ""),
            )
        )


def _word(stage: pb.Stage) -> str:
    return pb.Stage.Name(stage).removeprefix("STAGE_").capitalize()


class RelayHistory:
    """Errors of a source's relay log. One thread calls :meth:`observe` repeatedly with the relay's present error."""

    def __init__(self, history: History, source: str) -> None:
        self._history = history
        self._source = source
        self._code = 0

    def observe(self, error: ShardmergeError | None, tasks: Sequence[str]) -> None:
        """Report an error that is not the one of the last call, and that there is none any more."""
        code = 0 if error is None else error.code
        if code == self._code:
            return
        self._code = code
        for task in tasks:
            text = "the relay log is fetched again" if error is None else "the relay log is not fetched"
            self._history.add(
                Event(
                    task,
                    HistoryEntryKind.ERROR,
                    time.time(),
                    text,
                    (self._source,),
                    same=f"relay {code}",
                    code=code,
                    name="" if error is None else error.spec.name,
                    message="" if error is None else error.message,
                )
            )


class LaneRetries:
    """Attempts of lanes that have failed and are repeated. Thread-safe. A report of a lane that works costs nothing."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = threading.Lock()
        self._attempts: dict[_Lane, tuple[int, int]] = {}

    def observe(self, report: relay_pb2.LaneReport) -> None:
        """An event for each failed attempt; a lane reports one several times."""
        is_retrying = report.HasField("retrying")
        if not is_retrying and not self._attempts:
            return
        who = report.who
        lane = who.task, who.source, who.stream, who.index
        attempt = who.epoch, report.attempt
        with self._lock:
            if not is_retrying:
                self._attempts.pop(lane, None)
                return
            if self._attempts.get(lane) == attempt:
                return
            self._attempts[lane] = attempt
        error = report.retrying
        self._history.add(
            Event(
                who.task,
                HistoryEntryKind.ERROR,
                time.time(),
                "a lane repeats its transaction",
                (who.source,),
                same=f"lane {error.code}",
                epoch=who.epoch,
                code=error.code,
                name=error.name,
                message=error.message,
            )
        )
