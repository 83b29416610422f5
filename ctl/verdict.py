"""Decides whether an answer is a success. Pure.

A command exits with 0 only if every result in the answer is true (for check-task: no check failed). One exception: the
`binlog` commands handle the sources that have an error, and the others have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardmerge.ctl.error_report import ErrorReport
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.common_pb2 import ErrorDetail
from shardmerge.proto.listed_names import listed

_MAX_NAMED = 5  # sources that one line of text names

Answer = (
    pb.OperateSourceResponse
    | pb.StartTaskResponse
    | pb.OperateTaskResponse
    | pb.QueryStatusResponse
    | pb.CheckTaskResponse
    | pb.ListMemberResponse
    | pb.PurgeRelayResponse
    | pb.HandleBinlogResponse
    | pb.UpdateTaskResponse
    | pb.ShowDDLLocksResponse
    | pb.UnlockDDLLockResponse
    | pb.PreviewDDLResponse
    | pb.OperateSchemaResponse
    | pb.QuarantineResponse
    | pb.ExplainRulesResponse
    | pb.ShowTargetsResponse
    | pb.TransferSourceResponse
    | pb.OperateRelayResponse
    | pb.HistoryResponse
    | pb.DiagnoseResponse
    | pb.OverviewResponse
)


@dataclass(frozen=True, slots=True)
class SourceFailure:
    """A source's (or worker's) part of an answer that is false."""

    where: str
    error: ErrorDetail | None
    msg: str


def source_failures(answer: Answer) -> tuple[SourceFailure, ...]:
    """Every false part of ``answer``, in the master's order."""
    match answer:
        case (
            pb.OperateSourceResponse()
            | pb.StartTaskResponse()
            | pb.OperateTaskResponse()
            | pb.PurgeRelayResponse()
            | pb.HandleBinlogResponse()
            | pb.UpdateTaskResponse()
            | pb.OperateSchemaResponse()
            | pb.QuarantineResponse()
            | pb.ExplainRulesResponse()
            | pb.ShowTargetsResponse()
            | pb.TransferSourceResponse()
            | pb.OperateRelayResponse()
            | pb.DiagnoseResponse()
        ):
            return tuple(
                SourceFailure(part.source or part.worker, part.error if part.HasField("error") else None, part.msg)
                for part in answer.sources
                if not part.result
            )
        case pb.QueryStatusResponse():
            return tuple(
                SourceFailure(
                    part.source_status.source or part.source_status.worker,
                    part.error if part.HasField("error") else None,
                    part.msg,
                )
                for part in answer.sources
                if not part.result
            )
        case _:
            return ()


def judge(command: str, answer: Answer) -> ErrorReport | None:
    """None for a success, else the one error to report: the only failure itself, or a count of several."""
    failed_checks = [check for check in _checks(answer) if check.state == worker_pb2.CHECK_STATE_FAIL]
    if failed_checks and (not answer.result or isinstance(answer, pb.CheckTaskResponse)):
        first = failed_checks[0]
        where = f" on source {first.source}" if first.source else ""
        return ErrorReport.of(
            errors.ctl.CHECKS_FAILED(
                command=command,
                counts=_counts(answer, len(failed_checks)),
                which=f"{first.name}{where}: {first.error_msg or first.desc}",
            )
        )
    failures = _without_idle_sources(answer, source_failures(answer))
    if len(failures) == 1 and failures[0].error is not None:
        return ErrorReport.of_detail(failures[0].error, failures[0].where)
    if len(failures) > 1:
        return ErrorReport.of(
            errors.ctl.SOME_FAILED(
                command=command,
                failed=len(failures),
                total=_parts(answer),
                which=_names(failure.where for failure in failures),
            )
        )
    if failures or not answer.result:
        reason = answer.msg or (failures[0].msg if failures else "") or "result is false, without a reason"
        where = f"source {failures[0].where}: " if failures and failures[0].where else ""
        return ErrorReport.of(errors.ctl.REFUSED(command=command, answer=where + reason))
    return None


def _without_idle_sources(answer: Answer, failures: tuple[SourceFailure, ...]) -> tuple[SourceFailure, ...]:
    """``failures`` without the sources that have no error, if a `binlog` command has handled another source."""
    if not isinstance(answer, pb.HandleBinlogResponse) or not any(part.result for part in answer.sources):
        return failures
    no_error = errors.master.BINLOG_NO_ERROR.code
    return tuple(failure for failure in failures if failure.error is None or failure.error.code != no_error)


def _counts(answer: Answer, failed: int) -> str:
    """ "4 failed, 2 warned, 58 passed"; a master of an earlier version does not report how many passed."""
    checks = tuple(_checks(answer))
    warned = sum(check.state == worker_pb2.CHECK_STATE_WARN for check in checks)
    passed = sum(check.state == worker_pb2.CHECK_STATE_PASS for check in checks)
    if isinstance(answer, pb.StartTaskResponse | pb.UpdateTaskResponse):
        passed += answer.checks_passed
    return f"{failed} failed, {warned} warned" + (f", {passed} passed" if passed else "")


def _checks(answer: Answer) -> Iterable[worker_pb2.CheckResult]:
    if isinstance(answer, pb.StartTaskResponse | pb.CheckTaskResponse | pb.UpdateTaskResponse):
        return answer.check_result
    return ()


def _parts(answer: Answer) -> int:
    match answer:
        case (
            pb.CheckTaskResponse()
            | pb.ListMemberResponse()
            | pb.ShowDDLLocksResponse()
            | pb.UnlockDDLLockResponse()
            | pb.PreviewDDLResponse()
            | pb.HistoryResponse()
        ):
            return 0
        case _:
            return len(answer.sources)


def _names(names: Iterable[str]) -> str:
    return listed(tuple(names), _MAX_NAMED)
