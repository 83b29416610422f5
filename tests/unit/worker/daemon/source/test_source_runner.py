"""Tests how long the totals of a source's lanes live."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from shardmerge.proto import common_pb2, config_pb2, relay_pb2
from shardmerge.proto.task_history.event import NO_HISTORY
from shardmerge.worker.core.mysql.connection import ServerInfo
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.task_runner import TaskRunner
from shardmerge.worker.daemon.source.server_id_lease import ServerIdLease
from shardmerge.worker.daemon.source.source_runner import OfWorker, SourceRunner
from shardmerge.worker.daemon.subtask import subtask as module
from shardmerge.worker.daemon.subtask.run_resources import RunObserver
from shardmerge.worker.daemon.subtask.source_context import SourceContext
from shardmerge.worker.daemon.subtask.subtask import Decision
from shardmerge.worker.daemon.task_service import TaskService
from shardmerge.worker.ddl.locks.lock_client import LockClient
from shardmerge.worker.unit.contract import Epochs, Outcome, Stopped
from tests.support.wait import until


class _NoServerId:
    """A source that nothing listens for needs none."""

    def __call__(self, server: ServerInfo) -> int:
        return 1

    def renew(self) -> None: ...

    def release(self) -> None: ...


class _Run:
    """A run without servers. It ends when it may."""

    may_end = threading.Event()

    def __init__(
        self, config: config_pb2.SubTaskConfig, token: str, update: str, host: SourceContext, owner: RunObserver
    ) -> None: ...

    def run(self, stop: StopSignal) -> Outcome:
        while not (stop.is_set and _Run.may_end.is_set()):
            stop.wait(0.01)
            _Run.may_end.wait(0.01)
        return Stopped()


@pytest.fixture
def service() -> TaskService:
    return TaskService(lambda: None)


@pytest.fixture
def runner(service: TaskService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceRunner]:
    monkeypatch.setattr(module, "SubTaskRun", _Run)
    monkeypatch.setattr(_Run, "may_end", threading.Event())
    config = config_pb2.SourceConfig(source_id="s", flavor="mysql")
    getattr(config, "from").CopyFrom(config_pb2.Endpoint(host="127.0.0.1", port=1))
    made = SourceRunner(
        config,
        tmp_path,
        cast("ServerIdLease", _NoServerId()),
        OfWorker(
            cast("TaskRunner", SimpleNamespace(is_local=True)),
            service,
            "",
            cast("Epochs", None),
            lambda: True,
            cast("LockClient", None),
            NO_HISTORY,
        ),
        relay_paused=True,
    )
    yield made
    _Run.may_end.set()
    made.stop(30.0)


def _decisions(
    *tasks: str, stage: common_pb2.Stage = common_pb2.STAGE_RUNNING, revision: int = 1
) -> dict[str, Decision]:
    return {task: Decision(config_pb2.SubTaskConfig(task=task), stage, "", "", revision) for task in tasks}


def _report(task: str, written_rows: int = 3) -> relay_pb2.LaneReport:
    return relay_pb2.LaneReport(
        who=relay_pb2.TaskIdentity(task=task, source="s", epoch=1),
        counters=relay_pb2.LaneCounters(began=1.0, written_rows=written_rows),
    )


def _written(service: TaskService, task: str) -> list[int]:
    return [total.written_rows for total in service.totals.of(task, "s").lanes.values()]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_source_that_leaves_the_worker_has_no_totals(
    runner: SourceRunner, service: TaskService, *, is_late: bool
) -> None:
    """Also if a subtask needs longer than the worker waits: its lanes report until they end."""
    runner.reconcile(_decisions("one", "two"))
    for task in ("one", "two"):
        service.totals.add(_report(task))
    assert _written(service, "one") == _written(service, "two") == [3]
    if not is_late:
        _Run.may_end.set()
    assert runner.stop(0.0 if is_late else 30.0) is not is_late
    assert _written(service, "one") == _written(service, "two") == []
    service.totals.add(_report("one"))
    assert _written(service, "one") == []


def test_a_task_that_starts_again_counts_from_0(runner: SourceRunner, service: TaskService) -> None:
    _Run.may_end.set()
    runner.reconcile(_decisions("one"))
    service.totals.add(_report("one"))
    runner.reconcile({})
    service.totals.add(_report("one"))  # a lane that has not ended yet
    assert _written(service, "one") == []
    runner.reconcile(_decisions("one"))
    assert _written(service, "one") == []
    service.totals.add(_report("one", 5))
    assert _written(service, "one") == [5]
    runner.reconcile(_decisions("one"))
    assert _written(service, "one") == [5]


def test_a_paused_task_keeps_its_totals(runner: SourceRunner, service: TaskService) -> None:
    _Run.may_end.set()
    runner.reconcile(_decisions("one"))
    service.totals.add(_report("one"))
    runner.reconcile(_decisions("one", stage=common_pb2.STAGE_PAUSED, revision=2))
    until(lambda: runner.status("one")[1][0].stage == common_pb2.STAGE_PAUSED, "it is paused")
    runner.reconcile(_decisions("one", revision=3))
    assert _written(service, "one") == [3]
