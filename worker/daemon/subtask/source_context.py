"""What a subtask needs from its worker and its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardmerge.proto import config_pb2
from shardmerge.proto.task_history.event import NO_HISTORY, History
from shardmerge.worker.core.task_runner import TaskRunner
from shardmerge.worker.daemon.task_service import TaskService
from shardmerge.worker.ddl.locks.lock_client import LockClient
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.source_clock import SourceClock
from shardmerge.worker.unit.contract import Epochs


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The context of one bound source, shared by all of its subtasks.

    ``needed_by_others``: whether a subtask of another task may need the present relay log.
    ``history``: takes what happens to the subtasks. ``promised_slots``: the Spark slots that subtasks of other tasks
    have or are about to take.
    """

    source: config_pb2.SourceConfig
    relay: Relay
    clock: SourceClock
    epochs: Epochs
    task_runner: TaskRunner
    service: TaskService
    lane_address: str
    needed_by_others: Callable[[str], bool]
    shards: LockClient
    history: History = NO_HISTORY
    promised_slots: Callable[[str], int] = lambda task: 0
