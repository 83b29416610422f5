"""The reports of executors: another version, an address that is not reached, an uncompiled decoder, in that order."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.spark.build import Survey, own_versions
from shardmerge.worker.core.spark.job import TaskFailure
from shardmerge.worker.core.spark.runner import SlotsFailed
from shardmerge.worker.core.spark.survey import ExecutorReport, explained, verdict

_OWN = {"Python": "3.11", "pyspark": "4.3.0", "pyarrow": "20.0.0", "shardmerge": "0.1.0 (sources 0123456789ab)"}
_GOOD = ExecutorReport("host-1", _OWN, True, "")
_ADDRESS = "10.0.0.2:8262"


def test_nothing_to_report() -> None:
    assert verdict([_GOOD, replace(_GOOD, host="host-2")], _OWN, _ADDRESS) is None


@pytest.mark.parametrize("what", sorted(_OWN))
def test_another_version(what: str) -> None:
    other = replace(_GOOD, host="host-2", versions={**_OWN, what: "9"}, is_compiled=False, unreachable="refused")
    with pytest.raises(ShardmergeError) as caught:
        verdict([replace(_GOOD, unreachable="refused"), other], _OWN, _ADDRESS)
    assert caught.value.spec is errors.worker.SPARK_VERSIONS_DIFFER
    assert caught.value.message == f"{what} is 9 on the executor's host host-2, and {_OWN[what]} in the worker"
    assert "host-2" in caught.value.workaround


def test_a_worker_that_is_not_reached() -> None:
    with pytest.raises(ShardmergeError) as caught:
        verdict([_GOOD, replace(_GOOD, host="host-2", unreachable="refused")], _OWN, _ADDRESS)
    assert caught.value.spec is errors.worker.SPARK_CANNOT_REACH_WORKER
    assert caught.value.message == f"the executor's host host-2 cannot reach the worker at {_ADDRESS}: refused"


def test_a_decoder_that_is_not_compiled_is_a_warning() -> None:
    slow = replace(_GOOD, host="host-2", is_compiled=False)
    found = verdict([slow, slow, _GOOD], _OWN, _ADDRESS)
    assert found is not None
    assert found.spec is errors.worker.DECODER_NOT_COMPILED
    assert "on host-2:" in found.message


def test_tasks_without_a_report() -> None:
    missing = TaskFailure("host-2", "x\nModuleNotFoundError: No module named 'shardmerge'")
    other = TaskFailure("host-1", "org.apache.spark.SparkException: out of order\n\tat x")
    found = explained(SlotsFailed("stage", [other, missing]), _OWN)
    assert found.spec is errors.worker.SPARK_VERSIONS_DIFFER
    assert found.message.startswith("shardmerge is not installed on the executor's host host-2")
    found = explained(SlotsFailed("stage", [other]), _OWN)
    assert found.spec is errors.worker.SPARK_START_FAILED
    assert found.message.endswith("have failed: host-1: org.apache.spark.SparkException: out of order")
    assert explained(SlotsFailed("stage"), _OWN).message.endswith("have failed: stage")


def test_what_a_process_reports() -> None:
    """Nothing listens at the address: the reason is a part of the report."""
    report = json.loads(Survey("127.0.0.1:1", pickle.dumps(None)).report())
    assert report["versions"] == own_versions()
    assert report["unreachable"].startswith("[60801 peer-unreachable] worker at 127.0.0.1:1")
