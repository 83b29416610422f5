"""The heap of the JVM of Spark's driver."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException

from shardmerge.worker.core.spark.failures import JVM_ERRORS
from shardmerge.worker.core.task_runner import JvmHeap


def read_heap(spark: SparkContext) -> JvmHeap | None:
    """Four calls of the JVM, on a connection of the calling thread: no job waits for them. None: the JVM has ended, or
    runs in another process (Spark Connect)."""
    with suppress(*JVM_ERRORS, PySparkException, AttributeError):
        runtime: Any = spark._jvm.java.lang.Runtime.getRuntime()  # pyright: ignore[reportOptionalMemberAccess]
        committed = int(runtime.totalMemory())
        return JvmHeap(committed - int(runtime.freeMemory()), committed, int(runtime.maxMemory()))
    return None
