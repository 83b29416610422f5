"""Why nothing of a source is applied."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from shardmerge.master.diagnosis.view import SourceView
from shardmerge.proto import common_pb2, errors, worker_pb2
from shardmerge.proto.common_pb2 import ErrorDetail
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.master.diagnosis.views import SOURCE, TASK, findings, ids, lane, one, sync, view

_ERROR = ErrorDetail(code=40001, name="key-collision", message="row collides.", workaround="keep keys apart")


def _paused(*, error: bool = False, waiting_for: str = "", expected_paused: bool = False) -> SourceView:
    subtask = worker_pb2.SubTaskStatus(name=TASK, stage=common_pb2.STAGE_PAUSED, waiting_for=waiting_for)
    if error:
        subtask.result.errors.append(_ERROR)
    return view(subtask=subtask, is_paused=expected_paused)


def test_paused_by_an_operator() -> None:
    found = one("paused", _paused(expected_paused=True))
    assert found.actions == (f"`dmctl resume-task {TASK} -s {SOURCE}`",)
    assert ids(_paused(expected_paused=True)) == ["paused"]


def test_a_subtask_of_a_new_worker_that_is_to_be_paused() -> None:
    subtask = worker_pb2.SubTaskStatus(name=TASK, stage=common_pb2.STAGE_NEW)
    assert ids(view(subtask=subtask, is_paused=True)) == ["paused"]
    assert ids(view(subtask=subtask)) == ["not-started"]


def test_a_run_that_no_operator_has_paused() -> None:
    """As while the worker has lost its lease."""
    [found] = findings(_paused())
    assert (found.id, found.weight) == ("not-started", 95)
    assert "Its run was interrupted" in found.text and "operator" not in found.text


def test_a_worker_that_has_not_taken_over_the_subtask() -> None:
    status = worker_pb2.WorkerStatusResponse(worker="w1", source=SOURCE)
    answer = worker_pb2.WorkerDiagnoseResponse(status=status)
    assert ids(SourceView(TASK, SOURCE, "w1", None, answer)) == ["not-started"]
    answer.status.source_error.CopyFrom(_ERROR)
    assert ids(SourceView(TASK, SOURCE, "w1", None, answer)) == ["source-error"]


def test_a_worker_of_an_earlier_version() -> None:
    failure = error_to_proto(errors.master.PEER_UNIMPLEMENTED(peer="worker w1", reason="Method not found!"))
    [found] = findings(SourceView(TASK, SOURCE, "w1", failure=failure))
    assert (found.id, found.figures) == ("worker-earlier", {"code": 60803})
    assert found.text == "Worker w1 is of an earlier version, which does not measure where the time goes."


def test_names_are_quoted_for_a_shell() -> None:
    """A name may hold blanks and quotes: what is pasted must not be another command."""
    subtask = worker_pb2.SubTaskStatus(name=TASK, stage=common_pb2.STAGE_PAUSED)
    subtask.result.errors.add(code=1, name="n", message="m", workaround="`dmctl binlog skip <task> -s <source>`")
    seen = replace(view(subtask=subtask), task="my; task", source="it's")
    skip, resume = one("stopped-by-error", seen).actions
    for text, wanted in ((skip, ["dmctl", "binlog", "skip"]), (resume, ["dmctl", "resume-task"])):
        assert shlex.split(text.split("`")[1]) == [*wanted, "my; task", "-s", "it's"]


def test_stopped_by_an_error() -> None:
    found = one("stopped-by-error", _paused(error=True))
    assert found.text == "An error has stopped it: [40001 key-collision] row collides."
    assert found.actions == ("keep keys apart", f"Then `dmctl resume-task {TASK} -s {SOURCE}`")
    assert found.figures == {"code": 40001}


def test_paused_by_an_operator_after_an_error() -> None:
    found = one("paused", _paused(error=True, expected_paused=True))
    assert "An operator has paused it" in found.text and "[40001 key-collision]" in found.text
    assert found.actions == ("keep keys apart", f"`dmctl resume-task {TASK} -s {SOURCE}`")
    assert ids(_paused(error=True, expected_paused=True)) == ["paused"]


def test_an_automatic_resume_waits() -> None:
    found = one("resume-waits", _paused(error=True, waiting_for="automatic resume in 12 s"))
    assert "automatic resume in 12 s" in found.text and "[40001 key-collision]" in found.text


def test_no_worker_has_the_source() -> None:
    unbound = SourceView(TASK, SOURCE, "w9", failure=_ERROR, is_bound=False)
    assert ids(unbound) == ["source-unbound"]
    assert "It was bound to worker w9, which is offline" in one("source-unbound", unbound).text
    assert ids(SourceView(TASK, SOURCE, failure=_ERROR, is_bound=False, is_disabled=True)) == ["source-disabled"]


def test_a_worker_that_does_not_answer() -> None:
    silent = SourceView(
        TASK, SOURCE, "w1", failure=ErrorDetail(code=60101, name="peer-unreachable", message="no answer")
    )
    found = one("worker-silent", silent)
    assert "Worker w1 could not be asked: [60101 peer-unreachable] no answer" in found.text
    assert ids(silent) == ["worker-silent"]


def test_a_source_that_the_worker_cannot_use() -> None:
    status = worker_pb2.WorkerStatusResponse(worker="w1", source=SOURCE, source_error=_ERROR)
    subtask = worker_pb2.SubTaskStatus(name=TASK, stage=common_pb2.STAGE_NEW, waiting_for="x")
    assert ids(view(worker_status=status, subtask=subtask))[0] == "source-error"


def _with_relay(**fields: Any) -> SourceView:
    relay = worker_pb2.RelayStatus(stage=common_pb2.STAGE_RUNNING, **fields)
    status = worker_pb2.WorkerStatusResponse(worker="w1", source=SOURCE, relay=relay)
    return view(lane(0, {"idle": 1.0}), worker_status=status, status=sync(1, unknown="the relay is paused"))


def test_a_relay_that_an_operator_has_paused() -> None:
    found = findings(_with_relay(paused=True))
    assert [each.id for each in found] == ["relay-paused"], "why the lag is unknown is known"
    assert found[0].actions == (f"`dmctl resume-relay -s {SOURCE}`",)


def test_a_relay_with_an_error() -> None:
    found = one("relay-error", _with_relay(result=_ERROR))
    assert "[40001 key-collision]" in found.text and "tried again by itself" in found.text


def test_what_to_do_after_an_error_is_listed_once() -> None:
    named = ErrorDetail(code=20001, name="gone", message="purged", workaround="`dmctl resume-task <task> -s s1`")
    stopped = worker_pb2.SubTaskStatus(name=TASK, stage=common_pb2.STAGE_PAUSED)
    stopped.result.errors.append(named)
    relay = worker_pb2.RelayStatus(stage=common_pb2.STAGE_PAUSED, result=named)
    status = worker_pb2.WorkerStatusResponse(worker="w1", source=SOURCE, relay=relay)
    both = view(subtask=stopped, worker_status=status)
    assert ids(both) == ["stopped-by-error"], "the relay's error is the subtask's"
    assert one("stopped-by-error", both).actions == (f"`dmctl resume-task {TASK} -s s1`",)
    waits = ErrorDetail(code=20020, name="full", message="no space", workaround="free space", retryable=True)
    relay = worker_pb2.RelayStatus(stage=common_pb2.STAGE_PAUSED, result=waits)
    status = worker_pb2.WorkerStatusResponse(worker="w1", source=SOURCE, relay=relay)
    seen = view(lane(0, {"idle": 1.0}), worker_status=status, status=sync(1, unknown="it is not fetched"))
    assert one("relay-error", seen).actions == ("free space",)


def test_a_worker_without_spark() -> None:
    seen = view(lane(0, {"idle": 1.0}), status=sync(1, synced=True))
    assert seen.answer is not None
    seen.answer.use.spark.lost = True
    assert ids(seen) == ["spark-down"]


def test_a_running_subtask_has_none_of_these() -> None:
    assert not {"paused", "stopped-by-error", "relay-paused", "relay-error", "not-started"} & set(
        ids(view(lane(0, {"idle": 1.0}), status=sync(1, synced=True)))
    )


@pytest.mark.parametrize("stage", [common_pb2.STAGE_FINISHED, common_pb2.STAGE_STOPPED])
def test_the_end(stage: common_pb2.Stage) -> None:
    wanted = "finished" if stage == common_pb2.STAGE_FINISHED else "stopping"
    assert ids(view(status=sync(1), stage=stage)) == [wanted]


def test_equal_findings_of_several_sources_are_one() -> None:
    idle = [view(lane(0, {"idle": 1.0}), status=sync(1, synced=True), source=f"mysql-{n:02d}") for n in range(16)]
    [found] = findings(*idle)
    assert found.id == "source-idle" and len(found.sources) == 16
