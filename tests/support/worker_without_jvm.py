"""Starts a dm-worker whose tasks are processes without a JVM.

``python -m tests.support.worker_without_jvm --config FILE``.

It is the daemon as users start it, in everything but what runs its tasks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardmerge.proto.config.daemon.model import WorkerFile
    from shardmerge.worker.core.spark.scratch_dir import ScratchDir
    from shardmerge.worker.core.task_runner import TaskRunner

_OF_TRANSFORMS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.ui.enabled=false"
"""For the JVM that SQL transforms start: it starts in less time."""


def main() -> None:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _OF_TRANSFORMS)
    from shardmerge.worker.core.spark.settings import effective, slots
    from shardmerge.worker.daemon.main import main as dm_worker
    from tests.support.task_runners import ProcessRunner

    def begin(config: WorkerFile, _: ScratchDir) -> Callable[[], TaskRunner]:
        runner = ProcessRunner(
            slots(effective(config.spark_settings())) or 1, drain_seconds=float(config.drain_seconds)
        )
        return lambda: runner

    dm_worker(begin)


# A task's process imports the main module again: here that costs nothing.
if __name__ == "__main__":
    main()
