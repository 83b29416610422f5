"""The first task of every worker: is the project whole where Spark runs its tasks?"""

from __future__ import annotations

import platform

from proto import errors
from worker.binlog import is_compiled
from worker.spark import TaskBody, TaskDone, TaskFailed, TaskOutcome


class ProbeTask(TaskBody):
    """Imports what lanes import; an uncompiled decoder is reported (it is correct, but slow)."""

    def __call__(self, index: int) -> TaskOutcome:
        if not is_compiled():
            return TaskFailed(errors.worker.DECODER_NOT_COMPILED(where=platform.node()))
        return TaskDone()
