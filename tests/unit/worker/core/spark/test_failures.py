"""What Spark reports about a failed job, as pyspark 4.3 gives it."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.spark.failures import Differs, difference_in, first_line

_HEAD = """\
An error occurred while calling o83.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.2 executor 1): """
_PYTHON = (
    _HEAD
    + """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: \
3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
"""
)
_MODULE = (
    _HEAD
    + """org.apache.spark.SparkException:
Error from python worker:
  /usr/bin/python3: Error while finding module specification for 'shardmerge.worker.core.spark.python_daemon' \
(ModuleNotFoundError: No module named 'shardmerge')
PYTHONPATH was:
"""
)
_IMPORT = (
    _HEAD
    + """org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
  ModuleNotFoundError: No module named 'pyarrow.lib'
PYTHONPATH was:
"""
)
_LOST = _HEAD + "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: exit code 137"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (_PYTHON, Differs("Python", "3.12")),
        (_MODULE, Differs("shardmerge", "")),
        (_IMPORT, Differs("pyarrow", "")),
        (_LOST, None),
        ("", None),
    ],
)
def test_differences(text: str, found: Differs | None) -> None:
    assert difference_in(text) == found


def test_the_line_with_most_content() -> None:
    assert first_line(RuntimeError(_LOST)).startswith("org.apache.spark.SparkException: Job aborted")
    coded = "Traceback:\n  x\nshardmerge.proto.errors.spec.ShardmergeError: [61011 tls-file-missing] no file\n"
    assert first_line(RuntimeError(coded)) == "[61011 tls-file-missing] no file"
    assert first_line(RuntimeError("one\ntwo")) == "RuntimeError: one"
    assert first_line(RuntimeError()) == "RuntimeError: "
