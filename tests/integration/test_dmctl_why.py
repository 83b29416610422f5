"""Tests dmctl why and dmctl top, as a subprocess, against prepared answers."""

from __future__ import annotations

import signal

from shardmerge.proto import common_pb2, diagnose_pb2, errors
from shardmerge.proto import master_pb2 as pb
from tests.integration.dmctl_rig import Terminal, dmctl, master, no_error
from tests.support import canned_master as canned
from tests.support.canned_master import CannedMaster
from tests.support.wait import until

__all__ = ["master"]

_FINDING = diagnose_pb2.Finding(
    id="row-lock", sources=["mysql-01"], weight=90.4, text="Lane 1 has waited 23 s.", actions=["`KILL 692`"]
)
_ANSWER = pb.DiagnoseResponse(
    result=True,
    task="merge",
    seconds=3.0,
    findings=[_FINDING],
    uses=[diagnose_pb2.SourceUse(source="mysql-01", worker="w1", stage=common_pb2.STAGE_RUNNING)],
    sources=[pb.SourceResult(result=True, source="mysql-01", worker="w1")],
)


def _overview(lag: float, target: float) -> pb.OverviewResponse:
    subtask = diagnose_pb2.SubTaskOverview(
        task="merge",
        stage=common_pb2.STAGE_RUNNING,
        unit=common_pb2.UNIT_REPLICATE,
        lag_seconds=lag,
        recent_rps=1200,
    )
    subtask.seconds.update({"target": target, "idle": 1.0})
    return pb.OverviewResponse(
        result=True, sources=[pb.SourceOverview(task="merge", source="mysql-01", worker="w1", subtask=subtask)]
    )


def test_why_sends_its_options_and_prints_the_causes(master: CannedMaster) -> None:
    master.answer("Diagnose", _ANSWER)
    ran = dmctl("why", "merge", "-s", "mysql-01", "--seconds", "0.5", address=master.address)
    no_error(ran)
    assert master.requests == [pb.DiagnoseRequest(task="merge", sources=["mysql-01"], seconds=0.5)]
    [found] = ran.json["findings"]
    assert (found["id"], found["weight"], found["actions"]) == ("row-lock", 90.4, ["`KILL 692`"])
    assert ran.json["uses"][0]["stage"] == "Running"
    table = dmctl("--output", "table", "why", "merge", address=master.address)
    no_error(table)
    assert master.requests[-1].seconds == 3
    assert "1. row-lock  mysql-01  Lane 1 has waited 23 s." in table.out and "→ `KILL 692`" in table.out


def test_why_fails_if_a_source_could_not_be_asked(master: CannedMaster) -> None:
    answer = pb.DiagnoseResponse()
    answer.CopyFrom(_ANSWER)
    answer.result = False
    answer.sources.add(source="mysql-02", error=canned.detail(message="no answer"))
    master.answer("Diagnose", answer)
    ran = dmctl("why", "merge", address=master.address)
    assert (ran.code, "source mysql-02" in ran.error or "no answer" in ran.error) == (1, True)
    master.answer("Diagnose", errors.master.TASK_UNKNOWN(task="nope"))
    assert "[60302" in dmctl("why", "nope", address=master.address).error
    assert dmctl("why", "merge", "--seconds", "99", address=master.address).code == 2


def test_top_in_a_pipe_is_printed_once(master: CannedMaster) -> None:
    master.answer("Overview", _overview(5.0, 10.0), _overview(6.0, 10.9))
    ran = dmctl("top", "--interval", "0.2", address=master.address)
    no_error(ran)
    assert len(master.requests) == 2, "the main cause is that of the time between two answers"
    [task] = ran.json["tasks"]
    assert (task["task"], task["lagSeconds"], task["mainCause"]) == ("merge", 6, "target 100 %")
    assert ran.json["sources"][0]["subtask"]["recentRps"] == "1200"
    master.answer("Overview", _overview(5.0, 10.0), _overview(6.0, 10.9))
    table = dmctl("--output", "table", "top", "--once", "--interval", "0.2", address=master.address)
    no_error(table)
    line = next(line for line in table.out.splitlines() if line.startswith("merge"))
    assert line.split() == ["merge", "●", "Running", "1", "6.0", "s", "1,200", "–", "–", "target", "100", "%"]


def test_top_is_refreshed_until_ctrl_c(master: CannedMaster) -> None:
    master.answer("Overview", _overview(5.0, 10.0), errors.master.NO_LEADER(master="m"), _overview(6.0, 10.9))
    terminal = Terminal("top", "--interval", "0.2", address=master.address)
    until(lambda: "target 100 %" in terminal.read(), "the cause is shown", 60)
    assert "1 task(s)" in terminal.text and "main cause" in terminal.text
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text
    assert terminal.text.rstrip().endswith("\x1b[?25h")  # the cursor is visible again


def test_top_without_a_task(master: CannedMaster) -> None:
    master.answer("Overview", pb.OverviewResponse(result=True))
    ran = dmctl("--output", "table", "top", "--interval", "0.2", address=master.address)
    no_error(ran)
    assert "There is no task." in ran.out
