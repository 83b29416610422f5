"""What happens to a task, and the entry of its history that one or several equal events make."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from shardmerge.proto.tracing.operation import present_operation


class HistoryEntryKind(StrEnum):
    """The kinds of entries. Each kind of each task has a bound of its own, so that many of one kind remove no other."""

    STAGE = "stage"
    ERROR = "error"
    DDL = "ddl"
    COMMAND = "command"
    BINDING = "binding"


def _operation() -> str:
    operation = present_operation()
    return "" if operation is None else operation.id


@dataclass(frozen=True, slots=True)
class Event:
    """``at``: Unix seconds of the clock of the process that reports it. ``sources``: empty for the whole task.
    ``text``: what happened, one phrase. ``stage``: of the subtask since then. ``same``: events of one task and the same
    sources with equal, not empty texts here are repetitions: they become one entry, which shows the last of them.
    ``code``, ``name``, ``message``: of an error. ``actor``: who has given the command. ``operation``: id of the command
    that the thread carries out which makes the event, as in the log lines; "": none."""

    task: str
    kind: HistoryEntryKind
    at: float
    text: str
    sources: tuple[str, ...] = ()
    same: str = ""
    stage: str = ""
    epoch: int = 0
    code: int = 0
    name: str = ""
    message: str = ""
    statement: str = ""
    target: str = ""
    position: str = ""
    actor: str = ""
    failed: bool = False
    operation: str = field(default_factory=_operation)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """``name``: unique within the kind and the task; entries sort by it in the order of their first events. ``event``:
    the last of ``count`` equal ones, the first of which was at ``first``. ``left_out``: events of this kind and task
    that were too many to be recorded, since the previous entry of the same process."""

    name: str
    event: Event
    first: float
    count: int = 1
    left_out: int = 0


class History(Protocol):
    """Takes events; never waits and never raises."""

    def add(self, event: Event) -> None: ...

    def separate(self, task: str, source: str) -> None:
        """Events of this subtask that follow are no repetitions of those before: something has been decided."""
        ...


class _NoHistory:
    def add(self, event: Event) -> None:
        pass

    def separate(self, task: str, source: str) -> None:
        pass


NO_HISTORY: History = _NoHistory()
"""Records nothing."""
