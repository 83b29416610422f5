"""Starts a dm-worker whose tasks are processes without a JVM.

``python -m tests.support.worker_without_jvm --config FILE``.

It is the daemon as users start it, in everything but what runs its tasks.
"""

from __future__ import annotations

import os

_OF_TRANSFORMS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.ui.enabled=false"
"""For the JVM that SQL transforms start: it starts in less time."""


def main() -> None:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _OF_TRANSFORMS)
    from shardmerge.worker.core.spark.settings import effective, slots
    from shardmerge.worker.daemon.main import main as dm_worker
    from tests.support.task_runners import ProcessRunner

    dm_worker(
        lambda config, _: ProcessRunner(
            slots(effective(config.spark_settings())) or 1, drain_seconds=float(config.drain_seconds)
        )
    )


# A task's process imports the main module again: here that costs nothing.
if __name__ == "__main__":
    main()
