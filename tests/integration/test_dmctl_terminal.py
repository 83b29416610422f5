"""Tests what dmctl shows on a terminal, and the example client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from shardmerge.proto import common_pb2, errors
from shardmerge.proto import master_pb2 as pb
from tests.integration.dmctl_rig import BROKEN, LOADING, OK, SYNCED, Terminal, dmctl, master, no_error, task_file
from tests.support import canned_master as canned
from tests.support.canned_master import CannedMaster

__all__ = ["master", "task_file"]


def test_a_table_on_a_terminal(master: CannedMaster) -> None:
    master.answer("QueryStatus", SYNCED)
    terminal = Terminal("query-status", "merge", address=master.address)
    assert terminal.end() == 0
    assert "mysql-01" in terminal.text
    assert "✓ synced" in terminal.text
    assert "\x1b[32m" in terminal.text
    assert '"result"' not in terminal.text


def test_json_on_a_terminal_and_a_table_in_a_pipe_when_asked_for(master: CannedMaster) -> None:
    master.answer("QueryStatus", SYNCED)
    terminal = Terminal("query-status", "merge", "--output", "json", address=master.address)
    assert terminal.end() == 0
    assert json.loads(terminal.text)["result"] is True
    ran = dmctl("--output", "table", "query-status", "merge", address=master.address)
    no_error(ran)
    assert "✓ synced" in ran.out
    assert "\x1b" not in ran.out
    ran = dmctl("--output", "table", "query-status", "merge", "--until", "synced", address=master.address)
    no_error(ran)
    assert "In sync." in ran.out
    assert "\x1b" not in ran.out


def test_an_error_on_a_terminal_is_two_lines(master: CannedMaster) -> None:
    master.answer("QueryStatus", errors.master.TASK_UNKNOWN(task="nope"))
    terminal = Terminal("query-status", "nope", address=master.address)
    assert terminal.end() == 1
    assert terminal.text.count("\n") == 2
    assert terminal.text.startswith("\x1b[1;31merror:\x1b[0m [60302 task-unknown] ")


def _updates(master: CannedMaster) -> list[pb.UpdateTaskRequest]:
    return [one for one in master.requests if isinstance(one, pb.UpdateTaskRequest)]


def test_a_rename_of_a_target_is_confirmed(master: CannedMaster, task_file: Path) -> None:
    rename = pb.TargetRename(before="`d`.`t`", after="`d`.`u`", statement="", mentions=["view `d`.`v`"])
    seen = pb.UpdateTaskResponse(result=True, dry_run=True, rename=rename)
    master.answer("UpdateTask", seen, seen, pb.UpdateTaskResponse(result=True, rename=rename))
    command = ("update-task", str(task_file), "--rename-target")
    terminal = Terminal(*command, address=master.address)
    terminal.shows("`d`.`t` would be renamed to `d`.`u`", "view `d`.`v`", "[y/N]")
    terminal.type("n\n")
    assert terminal.end() == 1
    assert [one.dry_run for one in _updates(master)] == [True]
    terminal = Terminal(*command, address=master.address)
    terminal.shows("[y/N]")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert "`d`.`t` is renamed to `d`.`u`" in terminal.text
    assert [one.dry_run for one in _updates(master)] == [True, True, False]
    assert dmctl(*command, address=master.address).code == 2, "there is no terminal"
    # A master of an earlier version ignores the option: it would copy the table.
    master.answer("UpdateTask", pb.UpdateTaskResponse(result=True, dry_run=True))
    refused = dmctl(*command, "--yes", address=master.address)
    assert refused.code == 1
    assert "does not know --rename-target" in refused.err
    assert [one.dry_run for one in _updates(master)][3:] == [True]


EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "example_client.py"


def test_the_example_client(master: CannedMaster, task_file: Path) -> None:
    master.answer("StartTask", pb.StartTaskResponse(result=True, sources=[OK])).answer("QueryStatus", LOADING, SYNCED)
    done = _example(master.address, task_file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "in sync"
    assert (
        "merge: running, snapshot 399999 of 1000000 rows" in done.stdout or "snapshot 400000 of 1000000" in done.stdout
    )
    master.answer("QueryStatus", BROKEN)
    done = _example(master.address, task_file)
    assert done.returncode == 1
    assert "[40001 key-collision]" in done.stdout
    master.answer("StartTask", errors.master.TASK_EXISTS(task="merge", sources="mysql-01"))
    assert "[60301 task-exists]" in _example(master.address, task_file).stdout


def test_the_example_client_waits_while_the_progress_is_unknown(master: CannedMaster, task_file: Path) -> None:
    unknown = canned.status(canned.subtask(canned.unknown_progress("lane 1 has not reported for 8 s")))
    retried = canned.status(
        canned.subtask(
            canned.syncing(synced=True), stage=common_pb2.STAGE_PAUSED, errors=(canned.detail(retryable=True),)
        )
    )
    master.answer("StartTask", pb.StartTaskResponse(result=True, sources=[OK]))
    master.answer("QueryStatus", unknown, retried, SYNCED)
    done = _example(master.address, task_file)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "merge: running, progress unknown: lane 1 has not reported for 8 s"
    assert lines[1] == "merge: paused, progress unknown: it does not run"
    assert lines[-1] == "in sync"
    assert "0 bytes not applied" not in lines[:-2]


def _example(address: str, task_file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLE, address, task_file, "merge"], capture_output=True, text=True, timeout=300, check=False
    )
