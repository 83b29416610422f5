"""The first task of every worker: it checks that the compiled decoder is installed where Spark runs its tasks."""

from __future__ import annotations

import platform

from shardmerge.proto import errors
from shardmerge.worker.binlog import is_compiled
from shardmerge.worker.core.task_runner import TaskBody, TaskDone, TaskFailed, TaskOutcome


class ProbeTask(TaskBody):
    """Imports what lanes import; an uncompiled decoder is reported (it is correct, but slow)."""

    def __call__(self, index: int) -> TaskOutcome:
        if not is_compiled():
            return TaskFailed(errors.worker.DECODER_NOT_COMPILED(where=platform.node()))
        return TaskDone()
