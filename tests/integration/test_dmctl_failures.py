"""Tests what dmctl reports about failures: its own, the master's and those of the connection."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from tests.integration.dmctl_rig import DMCTL, OK, TASKS, Ran, dmctl, environment, master, no_error, silent, task_file
from tests.support import canned_master as canned
from tests.support.canned_master import CannedMaster
from tests.support.ports import free_port
from tests.support.wait import until

__all__ = ["master", "silent", "task_file"]


def test_one_false_result_is_exit_code_1_and_its_own_error(master: CannedMaster, task_file: Path) -> None:
    bad = pb.SourceResult(result=False, source="mysql-02", error=canned.detail(message="source mysql-02: it broke"))
    master.answer("StartTask", pb.StartTaskResponse(result=True, sources=[OK, bad]))
    ran = dmctl("start-task", str(task_file), address=master.address)
    assert ran.code == 1
    assert ran.error == "error: [40001 key-collision] source mysql-02: it broke"
    assert ran.json["sources"][1]["error"]["code"] == 40001


def test_an_error_of_the_master_keeps_its_code(master: CannedMaster) -> None:
    master.answer("QueryStatus", errors.master.TASK_UNKNOWN(task="nope"))
    ran = dmctl("query-status", "nope", address=master.address)
    assert (ran.code, ran.out) == (1, "")
    assert ran.error == "error: [60302 task-unknown] task nope does not exist"
    assert "query-status lists the tasks" in ran.err


def test_an_error_inside_the_master_shows_no_traceback(master: CannedMaster) -> None:
    master.answer("QueryStatus", 7)
    ran = dmctl("query-status", address=master.address)
    assert ran.code == 1
    assert ran.error


def test_no_process_at_the_address() -> None:
    port = free_port()
    ran = dmctl("query-status", "--master-addr", f"127.0.0.1:{port}")
    assert (ran.code, ran.out) == (1, "")
    assert "[80002 master-unreachable]" in ran.error
    assert f"127.0.0.1:{port}: connection refused" in ran.error
    assert "--master-addr or DM_MASTER_ADDR" in ran.err


def test_a_server_of_another_kind_at_the_address(make_listener: str) -> None:
    ran = dmctl("query-status", address=make_listener)
    assert ran.code == 1
    assert "it accepts connections, but no dm-master has answered within 3 s" in ran.error


@pytest.fixture
def make_listener() -> Iterator[str]:
    """Provide a TCP listener that never answers."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_next_address_is_tried(master: CannedMaster) -> None:
    master.answer("QueryStatus", TASKS)
    no_error(dmctl("query-status", address=f"127.0.0.1:{free_port()},{master.address}"))


def test_it_follows_to_the_leader(master: CannedMaster) -> None:
    follower = CannedMaster()
    try:
        follower.answer("QueryStatus", errors.master.NOT_LEADER(master="m2", leader="m1", address=master.address))
        master.answer("QueryStatus", TASKS)
        ran = dmctl("query-status", address=follower.address)
        no_error(ran)
        assert ran.json["tasks"][0]["taskName"] == "merge"
        assert (len(follower.requests), len(master.requests)) == (1, 1)
    finally:
        follower.stop()


def test_it_waits_for_an_election(master: CannedMaster) -> None:
    elsewhere = errors.master.NOT_LEADER(master="m2", leader="m1", address=f"127.0.0.1:{free_port()}")
    master.answer("QueryStatus", errors.master.NO_LEADER(master="m2"), elsewhere, TASKS)
    no_error(dmctl("query-status", address=master.address))
    assert len(master.requests) == 3


@pytest.mark.usefixtures("silent")
def test_a_deadline(master: CannedMaster) -> None:
    def unanswered() -> Ran | None:
        """Return the result; None if no connection existed within the time, so that no server could answer."""
        ran = dmctl("query-status", "--rpc-timeout", "1s", address=master.address)
        return None if "[80002 master-unreachable]" in ran.error else ran

    ran = until(unanswered, "the master has been asked")
    assert ran.code == 1
    assert "[80004 deadline-exceeded]" in ran.error
    assert master.address in ran.error


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("start-task", "no/such.yaml"), 1, "[80005 file-not-found] no/such.yaml"),
        (("stop-task", "gone.yaml"), 1, "[80005 file-not-found] gone.yaml"),
        (("operate-source", "create", "/"), 1, "[80006 file-unreadable] /"),
        (("start-task",), 2, "[80001 usage]"),
        (("stop-task",), 2, "needs a task"),
        (("operate-source", "destroy"), 2, "not 'destroy'"),
        (("operate-source", "create"), 2, "at least one source file"),
        (("query-status", "--nonsense"), 2, "--nonsense"),
        (("qery-status",), 2, "do you mean query-status?"),
        (("query-status", "--until", "synced"), 2, "needs a task"),
        (("query-status", "--rpc-timeout", "soon"), 2, "'soon' is not a duration"),
        (("query-status", "--master-addr", "http://x:1"), 2, "host:port"),
        (("handle-error",), 2, "[80001 usage]"),
        (("shard-ddl-lock", "unlock"), 2, "LOCK-ID"),
        (("shard-ddl-lock", "merge", "other"), 2, "other"),
        (("--ssl-ca", "ca.pem", "query-status"), 2, "ssl-cert and ssl-key are missing"),
        (
            ("--ssl-ca", "a.pem", "--ssl-cert", "b.pem", "--ssl-key", "k.pem", "query-status"),
            1,
            "[61002 tls-file-of-process-unusable] ssl-ca: a.pem cannot be used: No such file",
        ),
        (("-config", "nowhere.toml", "query-status"), 1, "nowhere.toml"),
        (("start-task", "x.yaml", "--start-time", "2024-01-01"), 1, "[10008 start-unreadable] 2024-01-01"),
        (("check-task", "x.yaml", "--stop-at", "mysql-bin.000001"), 1, "[10009 stop-unreadable] mysql-bin.000001"),
    ],
)
def test_what_is_wrong_before_anything_is_sent(arguments: tuple[str, ...], code: int, says: str) -> None:
    ran = dmctl(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.error


@pytest.mark.usefixtures("silent")
def test_a_signal_while_the_master_works(master: CannedMaster) -> None:
    process = subprocess.Popen(
        [DMCTL, "query-status"],
        env=environment(master.address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: master.requests, "the request arrives")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert "[80014 interrupted]" in Ran(process.returncode, out, err).error
    assert process.returncode == 130
