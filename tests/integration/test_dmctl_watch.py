"""Tests dmctl query-status that waits and watches, as lines and as a live view."""

from __future__ import annotations

import json
import signal
import subprocess

from shardmerge.proto import errors
from tests.integration.dmctl_rig import (
    BEHIND,
    BROKEN,
    DMCTL,
    FINISHED,
    LOADING,
    SYNCED,
    Terminal,
    dmctl,
    environment,
    master,
    no_error,
)
from tests.support.canned_master import CannedMaster
from tests.support.wait import until

__all__ = ["master"]


def test_watch_in_json_is_one_object_per_line_until_finished(master: CannedMaster) -> None:
    master.answer("QueryStatus", LOADING, FINISHED)
    ran = dmctl("query-status", "merge", "--watch", "--interval", "0.05", address=master.address)
    no_error(ran)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    stages = [line["sources"][0]["subTaskStatus"][0]["stage"] for line in lines]
    assert stages == ["Running", "Finished"]
    assert lines[0]["sources"][0]["subTaskStatus"][0]["unit"] == "Load"


def test_watch_until_synced(master: CannedMaster) -> None:
    master.answer("QueryStatus", LOADING, BEHIND, errors.master.NO_LEADER(master="m"), SYNCED)
    ran = dmctl("query-status", "merge", "--watch", "--until", "synced", "--interval", "0.05", address=master.address)
    no_error(ran)
    assert len(ran.out.splitlines()) == 3
    master.answer("QueryStatus", LOADING, BEHIND, SYNCED)
    ran = dmctl("query-status", "merge", "--until", "synced", "--interval", "0.05", address=master.address)
    assert json.loads(ran.out)["sources"][0]["subTaskStatus"][0]["sync"]["synced"] is True, "only the last answer"


def test_watch_ends_when_waiting_makes_no_sense(master: CannedMaster) -> None:
    master.answer("QueryStatus", BROKEN, SYNCED)
    arguments = ("query-status", "merge", "--until", "synced", "--interval", "0.05")
    no_error(dmctl(*arguments, address=master.address))  # reported only once: the error may be older than a resume-task
    master.answer("QueryStatus", BROKEN)
    ran = dmctl(*arguments, address=master.address)
    assert ran.code == 1
    assert "[80013 waiting-in-vain] task merge on source mysql-01 will not become synced" in ran.error


def test_watch_of_a_task_that_does_not_exist(master: CannedMaster) -> None:
    master.answer("QueryStatus", errors.master.TASK_UNKNOWN(task="nope"))
    ran = dmctl("query-status", "nope", "--watch", address=master.address)
    assert ran.code == 1
    assert "[60302" in ran.error


def test_watch_survives_a_reader_that_leaves(master: CannedMaster) -> None:
    master.answer("QueryStatus", LOADING)
    command = f"{DMCTL} query-status merge --watch --interval 0.05 | head -n 2"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environment(master.address),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""


def test_the_live_view_ends_by_ctrl_c_with_0(master: CannedMaster) -> None:
    master.answer("QueryStatus", LOADING, LOADING, BEHIND)
    terminal = Terminal("query-status", "merge", "--watch", "--interval", "0.05", address=master.address)
    until(lambda: "catching up" in terminal.read(), "the view shows both phases")
    assert "copying history" in terminal.text
    assert "━" in terminal.text
    assert "shop_01.orders_01" in terminal.text
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text
    assert terminal.text.rstrip().endswith("\x1b[?25h")  # the cursor is visible again


def test_the_live_view_ends_when_synced(master: CannedMaster) -> None:
    master.answer("QueryStatus", LOADING, BEHIND, SYNCED)
    terminal = Terminal("query-status", "merge", "--until", "synced", "--interval", "0.05", address=master.address)
    assert terminal.end() == 0
    assert "In sync." in terminal.text
