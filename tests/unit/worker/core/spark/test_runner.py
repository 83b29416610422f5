"""An exception of a task body becomes its outcome, and is reported at once."""

from __future__ import annotations

import pickle

import pytest

from shardmerge.proto import errors, networks
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.networks import Networks
from shardmerge.worker.core import inflation
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect
from shardmerge.worker.core.spark.build import own_versions
from shardmerge.worker.core.spark.runner import PartitionBody
from shardmerge.worker.core.task_runner import TaskBody, TaskDone, TaskFailed, TaskOutcome, guarded

BUSY = errors.replicate.TARGET_BUSY(host="h", port=1, reason="too many connections", errno=1040)


class _Body(TaskBody):
    """Ends with ``end``; ``reported``: the failures that it reported. ``deaf``: reporting fails."""

    def __init__(self, end: BaseException | None, *, deaf: bool = False) -> None:
        self._end, self._deaf = end, deaf
        self.reported: list[tuple[int, ShardmergeError]] = []

    def __call__(self, index: int) -> TaskOutcome:
        if self._end is not None:
            raise self._end
        return TaskDone()

    def failed(self, index: int, error: ShardmergeError) -> None:
        self.reported.append((index, error))
        if self._deaf:
            raise OSError("the driver is gone")


def test_what_a_body_returns_is_its_outcome() -> None:
    body = _Body(None)
    assert guarded("copy", body, 3) == TaskDone()
    assert body.reported == []


@pytest.mark.parametrize("deaf", [False, True])
def test_an_error_of_the_catalogue_stays_what_it_is(deaf: bool, capsys: pytest.CaptureFixture[str]) -> None:
    body = _Body(BUSY, deaf=deaf)
    assert guarded("copy", body, 3) == TaskFailed(BUSY)
    assert body.reported == [(3, BUSY)]
    assert ("the driver is gone" in capsys.readouterr().err) is deaf


@pytest.mark.parametrize("deaf", [False, True])
def test_any_other_exception_is_an_internal_error_with_kind_place_and_reason(
    deaf: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    body = _Body(ValueError("seven is not eight"), deaf=deaf)
    outcome = guarded("copy merge s1", body, 3)
    assert isinstance(outcome, TaskFailed)
    assert body.reported == [(3, outcome.error)]
    sent = pickle.loads(pickle.dumps(outcome)).error
    assert sent.spec is errors.worker.INTERNAL
    assert sent.message == "unexpected ValueError in Spark task 3 of copy merge s1: seven is not eight"
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "ValueError: seven is not eight" in shown


def test_the_end_of_the_process_is_not_an_outcome() -> None:
    """Spark reports that the task was lost."""
    with pytest.raises(SystemExit):
        guarded("copy", _Body(SystemExit(1)), 0)


class _Connects(TaskBody):
    def __call__(self, index: int) -> TaskOutcome:
        connect(Endpoint("127.0.0.1", 1, "u"), Side.TARGET, name="target")
        return TaskDone()


def test_a_task_may_connect_where_its_worker_may() -> None:
    """The executor's process has not read the worker's file."""
    try:
        networks.use(Networks.of(("192.0.2.0/24",)))
        sent = PartitionBody("copy", _Connects())
        networks.use(None)
        [outcome] = sent(iter([0]))
        assert isinstance(outcome, TaskFailed)
        assert outcome.error.spec is errors.worker.ADDRESS_NOT_ALLOWED
    finally:
        networks.use(None)


class _Reads(TaskBody):
    def __call__(self, index: int) -> TaskOutcome:
        return TaskFailed(errors.worker.INTERNAL(kind="size", where="task", reason=str(inflation.of_process())))


def test_a_task_reads_events_as_large_as_its_worker_does() -> None:
    most = inflation.of_process()
    try:
        inflation.use(5 << 20)
        sent = PartitionBody("copy", _Reads())
        inflation.use(most)
        [outcome] = sent(iter([0]))
        assert isinstance(outcome, TaskFailed)
        assert str(5 << 20) in outcome.error.message
    finally:
        inflation.use(most)


def test_a_task_does_not_run_in_another_build() -> None:
    """An executor may register later than those that were checked at the start."""
    for versions, spec in ((own_versions(), None), ({"pyspark": "0.1"}, errors.worker.SPARK_VERSIONS_DIFFER)):
        body = _Body(None)
        [outcome] = PartitionBody("copy", body, versions)(iter([0]))
        assert (outcome.error.spec if isinstance(outcome, TaskFailed) else None) is spec
