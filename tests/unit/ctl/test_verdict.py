"""Exit code 0 only if every result is true."""

from __future__ import annotations

import pytest

from shardmerge.ctl.error_report import ErrorReport
from shardmerge.ctl.verdict import Answer, judge
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.worker_pb2 import CHECK_STATE_FAIL, CHECK_STATE_PASS, CHECK_STATE_WARN, CheckResult, CheckState
from tests.support import canned_master as canned


def _part(*, result: bool, source: str = "a", msg: str = "", coded: bool = True) -> pb.SourceResult:
    error = canned.detail() if coded and not result else None
    return pb.SourceResult(result=result, source=source, msg=msg, error=error)


def _check(state: CheckState, name: str = "dump_privilege") -> CheckResult:
    return CheckResult(name=name, state=state, source="mysql-01", error_msg="no SELECT")


@pytest.mark.parametrize(
    "answer",
    [
        pb.OperateSourceResponse(result=True, sources=[_part(result=True)]),
        pb.OperateTaskResponse(result=True),
        pb.StartTaskResponse(result=True, sources=[_part(result=True)], check_result=[_check(CHECK_STATE_FAIL)]),
        pb.CheckTaskResponse(result=True, check_result=[_check(CHECK_STATE_PASS), _check(CHECK_STATE_WARN)]),
        pb.ListMemberResponse(result=True),
        pb.ShowDDLLocksResponse(result=True, locks=[pb.DDLLock(conflict=canned.detail())]),
        pb.UnlockDDLLockResponse(result=True),
        canned.status(canned.subtask(None)),
    ],
)
def test_good(answer: Answer) -> None:
    assert judge("x", answer) is None


def test_the_only_failure_is_reported_itself() -> None:
    report = judge(
        "start-task", pb.StartTaskResponse(result=False, sources=[_part(result=True), _part(result=False, source="b")])
    )
    assert report == ErrorReport(40001, "key-collision", "source b: row collides", "keep the shards' keys apart")


def test_a_false_part_fails_the_command_even_if_the_answer_is_true() -> None:
    assert judge("stop-task", pb.OperateTaskResponse(result=True, sources=[_part(result=False)])) is not None
    part = pb.SourceSubTasks(result=False, msg="worker is gone", source_status=pb.SourceStatus(source="b"))
    report = judge("query-status", pb.QueryStatusResponse(result=True, sources=[part]))
    assert report is not None
    assert report.code == errors.ctl.REFUSED.code
    assert report.message == "query-status: the master answered: source b: worker is gone"


def test_a_binlog_command_has_failed_only_if_no_source_was_handled() -> None:
    no_error = errors.master.BINLOG_NO_ERROR(task="t", source="b")
    idle = pb.SourceResult(result=False, source="b", msg=str(no_error), error=error_to_proto(no_error))
    handled, other = _part(result=True), _part(result=False, source="c")
    assert judge("binlog skip", pb.HandleBinlogResponse(result=True, sources=[handled, idle])) is None
    report = judge("binlog skip", pb.HandleBinlogResponse(result=True, sources=[idle]))
    assert report is not None and report.code == errors.master.BINLOG_NO_ERROR.code
    report = judge("binlog skip", pb.HandleBinlogResponse(result=False, sources=[handled, idle, other]))
    assert report is not None and report.code == 40001
    # The exception is for the commands that handle an error only.
    report = judge("pause-task", pb.OperateTaskResponse(result=True, sources=[handled, idle]))
    assert report is not None


def test_several_failures_are_counted_and_named() -> None:
    parts = [_part(result=False, source=f"s{n}") for n in range(7)]
    report = judge("pause-task", pb.OperateTaskResponse(result=False, sources=[*parts, _part(result=True)]))
    assert report is not None
    assert report.code == errors.ctl.SOME_FAILED.code
    assert report.message == "pause-task: 7 of 8 results are false: s0, s1, s2, s3, s4 and 2 more"


def test_a_failed_check() -> None:
    for answer in (
        pb.CheckTaskResponse(result=True, check_result=[_check(CHECK_STATE_PASS), _check(CHECK_STATE_FAIL)]),
        pb.StartTaskResponse(result=False, check_result=[_check(CHECK_STATE_PASS), _check(CHECK_STATE_FAIL)]),
    ):
        report = judge("check-task", answer)
        assert report is not None
        assert report.code == errors.ctl.CHECKS_FAILED.code
        expected = "checks: 1 failed, 0 warned, 1 passed; first dump_privilege on source mysql-01: no SELECT"
        assert expected in report.message


def test_checks_that_passed_are_counted_though_they_are_not_in_the_answer() -> None:
    answer = pb.StartTaskResponse(result=False, check_result=[_check(CHECK_STATE_FAIL)], checks_passed=58)
    report = judge("start-task", answer)
    assert report is not None
    assert "checks: 1 failed, 0 warned, 58 passed; first" in report.message


def test_a_false_answer_without_any_reason() -> None:
    for msg, expected in (("no such task", "no such task"), ("", "without a reason")):
        report = judge("list-member", pb.ListMemberResponse(result=False, msg=msg))
        assert report is not None
        assert expected in report.message


def test_two_lines_whatever_the_text() -> None:
    text = ErrorReport(7, "n", "a\nb\x1b[31m\tc", "").lines()
    assert text.count("\n") == 2
    first, second = text.splitlines()
    assert first == "error: [7 n] a b [31m c"
    assert second.startswith("       what to do: ")
