"""The real dmctl, as a subprocess, against a server that speaks the Master contract with prepared answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proto import common_pb2, errors, worker_pb2
from proto import master_pb2 as pb
from proto.worker_pb2 import CHECK_STATE_FAIL, CHECK_STATE_PASS, CheckResult
from tests.support import canned_master as canned
from tests.support import terminal
from tests.support.canned_master import CannedMaster
from tests.support.ports import free_port
from tests.support.wait import until

DMCTL = Path(sys.executable).parent / "dmctl"
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "example_client.py"

OK = pb.SourceResult(result=True, source="mysql-01", worker="w1")
TASKS = pb.QueryStatusResponse(
    result=True, tasks=[pb.TaskSummary(task_name="merge", task_status="Running", sources=["mysql-01"])]
)
SYNCED = canned.status(canned.subtask(canned.syncing(synced=True)))
BEHIND = canned.status(canned.subtask(canned.syncing(synced=False, behind=4096)))
LOADING = canned.status(canned.subtask(canned.loading(0.4)))
FINISHED = canned.status(canned.subtask(canned.loading(1.0), stage=common_pb2.STAGE_FINISHED))
BROKEN = canned.status(
    canned.subtask(canned.syncing(synced=False), stage=common_pb2.STAGE_PAUSED, errors=(canned.detail(),))
)


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The first of the two lines on stderr; asserts that there are exactly two, well-formed ones."""
        first, second = self.err.removesuffix("\n").split("\n")
        assert first.startswith("error: ["), self.err
        assert second.startswith("       what to do: "), self.err
        assert "Traceback" not in self.err
        return first


@pytest.fixture
def master() -> Iterator[CannedMaster]:
    server = CannedMaster()
    yield server
    server.stop()


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    file = tmp_path / "task.yaml"
    file.write_text("name: merge\ntask-mode: all\n")
    return file


def _environment(address: str = "") -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("DM_MASTER_ADDR", "NO_COLOR", "COLUMNS")}
    return {**kept, "TERM": "xterm-256color"} | ({"DM_MASTER_ADDR": address} if address else {})


def dmctl(*arguments: str, address: str = "") -> Ran:
    """Run with pipes."""
    done = subprocess.run(
        [DMCTL, *arguments],
        env=_environment(address),
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def _no_error(ran: Ran) -> None:
    assert (ran.code, ran.err) == (0, "")


# --- in a pipe


def test_no_command_is_help_and_version_is_said() -> None:
    for arguments in ((), ("--help",), ("help",)):
        ran = dmctl(*arguments)
        _no_error(ran)
        for command in ("operate-source", "check-task", "start-task", "query-status", "list-member", "stop-task"):
            assert command in ran.out
    for spelling in ("-V", "--version", "-version"):
        assert dmctl(spelling).out.startswith("dmctl 0.")
    assert "--remove-meta" in dmctl("help", "start-task").out


def test_query_status_in_a_pipe_is_json_with_dm_names(master: CannedMaster) -> None:
    master.answer("QueryStatus", TASKS, SYNCED)
    ran = dmctl("query-status", address=master.address)
    _no_error(ran)
    assert ran.json == {
        "result": True,
        "msg": "",
        "tasks": [{"taskName": "merge", "taskStatus": "Running", "sources": ["mysql-01"]}],
    }
    ran = dmctl("--master-addr", master.address, "query-status", "merge", "-s", "mysql-01,mysql-02", "-s", "x")
    _no_error(ran)
    subtask = ran.json["sources"][0]["subTaskStatus"][0]
    assert (subtask["stage"], subtask["unit"], subtask["sync"]["synced"]) == ("Running", "Sync", True)
    assert master.requests[-1] == pb.QueryStatusRequest(name="merge", sources=["mysql-01", "mysql-02", "x"])


def test_recorded_structures(master: CannedMaster, task_file: Path, tmp_path: Path) -> None:
    shown = pb.SourceSchema(
        result=True, source="mysql-01", worker="w1", msg="CREATE TABLE `d`.`a` (x)", target="`d`.`t`"
    )
    master.answer("OperateSchema", pb.OperateSchemaResponse(result=True, sources=[shown]))
    file = tmp_path / "a.sql"
    file.write_text("CREATE TABLE a (x INT)")
    by_file = {"task": "merge", "database": "d", "table": "a", "sources": ["mysql-01"]}
    op = worker_pb2.SchemaOp
    for arguments, wanted in (
        (("binlog-schema", "list", str(task_file), "d", "a"), {"op": op.SCHEMA_OP_LIST}),
        (("binlog-schema", "delete", "merge", "d", "a"), {"op": op.SCHEMA_OP_DELETE}),
        (("binlog-schema", "update", "merge", "d", "a", "--from-source"), {"from_source": True}),
        (("binlog-schema", "update", "merge", "d", "a", "--from-target", "--sync"), {"from_target": True}),
        (("binlog-schema", "update", "merge", "d", "a", str(file), "--flush"), {"schema": file.read_text()}),
        (("operate-schema", "get", "merge", "-d", "d", "-t", "a"), {"op": op.SCHEMA_OP_LIST}),
        (("operate-schema", "remove", str(task_file), "-d", "d", "-t", "a"), {"op": op.SCHEMA_OP_DELETE}),
        (
            ("operate-schema", "set", "merge", "-d", "d", "-t", "a", str(file), "--flush", "--sync"),
            {"schema": file.read_text()},
        ),
    ):
        ran = dmctl(*arguments, "-s", "mysql-01", address=master.address)
        _no_error(ran)
        assert ran.json["sources"][0]["msg"] == shown.msg
        request = pb.OperateSchemaRequest(**{"op": op.SCHEMA_OP_UPDATE, **by_file, **wanted})  # type: ignore[arg-type]
        assert master.requests[-1] == request
    count = len(master.requests)
    for arguments in (
        ("binlog-schema", "update", "merge", "d", "a"),
        ("binlog-schema", "update", "merge", "d", "a", str(file), "--from-target"),
        ("binlog-schema", "update", "merge", "d", "a", "--from-source", "--from-target"),
        ("binlog-schema", "list", "merge", "d"),
        ("operate-schema", "set", "merge", "-d", "d", "-t", "a"),
        ("operate-schema", "get", "merge", "-d", "d", "-t", "a", str(file)),
        ("operate-schema", "get", "merge", "-d", "d"),
    ):
        ran = dmctl(*arguments, address=master.address)
        assert ran.code == 2
        assert ran.error.startswith("error: [80001 "), ran.err
    missing = dmctl("binlog-schema", "update", "merge", "d", "a", "none.sql", address=master.address)
    assert missing.error.startswith(f"error: [{errors.ctl.FILE_NOT_FOUND.code} ")
    assert len(master.requests) == count


def test_more_without_a_task_asks_for_all_sources(master: CannedMaster) -> None:
    master.answer("QueryStatus", TASKS, SYNCED)
    ran = dmctl("query-status", "--more", address=master.address)
    _no_error(ran)
    assert master.requests[-1] == pb.QueryStatusRequest(sources=["mysql-01"])
    assert ran.json["sources"][0]["subTaskStatus"][0]["name"] == "merge"


def test_a_task_by_its_file(master: CannedMaster, task_file: Path) -> None:
    master.answer("OperateTask", pb.OperateTaskResponse(result=True, op="pause", sources=[OK]))
    operations = {
        "pause-task": pb.OperateTaskRequest.OP_PAUSE,
        "resume-task": pb.OperateTaskRequest.OP_RESUME,
        "stop-task": pb.OperateTaskRequest.OP_STOP,
    }
    for command, op in operations.items():
        ran = dmctl(command, str(task_file), "-s", "mysql-01", f"-master-addr={master.address}")
        _no_error(ran)
        assert ran.json["sources"][0] == {
            "result": True,
            "msg": "",
            "source": "mysql-01",
            "worker": "w1",
            "error": None,
        }
        assert master.requests[-1] == pb.OperateTaskRequest(op=op, name="merge", sources=["mysql-01"])
    _no_error(dmctl("stop-task", "-s", "mysql-01", address=master.address))
    assert master.requests[-1] == pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_STOP, sources=["mysql-01"])


def test_start_task_sends_the_file(master: CannedMaster, task_file: Path) -> None:
    master.answer("StartTask", pb.StartTaskResponse(result=True, sources=[OK]))
    _no_error(dmctl("start-task", str(task_file), "--remove-meta", "-s", "mysql-01", address=master.address))
    assert master.requests == [
        pb.StartTaskRequest(
            file=pb.ConfigFile(name=str(task_file), content="name: merge\ntask-mode: all\n"),
            sources=["mysql-01"],
            remove_meta=True,
        )
    ]


def test_operate_source(master: CannedMaster, tmp_path: Path) -> None:
    master.answer("OperateSource", pb.OperateSourceResponse(result=True, sources=[OK]))
    file = tmp_path / "source.yaml"
    file.write_text("source-id: mysql-01\n")
    sent = pb.ConfigFile(name=str(file), content="source-id: mysql-01\n")
    kinds = pb.OperateSourceRequest
    _no_error(dmctl("operate-source", "create", str(file), "-w", "w1", address=master.address))
    _no_error(dmctl("operate-source", "show", address=master.address))
    _no_error(dmctl("operate-source", "stop", str(file), "mysql-02", address=master.address))
    assert master.requests == [
        kinds(op=kinds.OP_CREATE, files=[sent], worker="w1"),
        kinds(op=kinds.OP_SHOW),
        kinds(op=kinds.OP_STOP, files=[sent], source_ids=["mysql-02"]),
    ]
    change = pb.SourceChange(source="mysql-01", key="from.port", before="3306", after="3307", effect="goes on there")
    master.answer("OperateSource", pb.OperateSourceResponse(result=True, sources=[OK], changes=[change]))
    ran = dmctl(
        "--output", "table", "operate-source", "update", str(file), str(file), "--dry-run", address=master.address
    )
    _no_error(ran)
    assert master.requests[-1] == kinds(op=kinds.OP_UPDATE, files=[sent, sent], dry_run=True)
    assert all(word in ran.out for word in ("from.port", "3306", "3307", "goes on there"))
    _no_error(dmctl("operate-source", "show", str(file), "mysql-02", address=master.address))
    assert master.requests[-1] == kinds(op=kinds.OP_SHOW, files=[sent], source_ids=["mysql-02"])
    ran = dmctl("operate-source", "-p")
    _no_error(ran)
    assert "source-id:" in ran.out


def test_transfer_source(master: CannedMaster) -> None:
    master.answer("TransferSource", pb.TransferSourceResponse(result=True, sources=[OK]))
    _no_error(dmctl("transfer-source", "mysql-01", "w2", address=master.address))
    assert master.requests == [pb.TransferSourceRequest(source="mysql-01", worker="w2")]


def test_the_relay_commands(master: CannedMaster) -> None:
    kinds = pb.OperateRelayRequest
    master.answer("OperateRelay", pb.OperateRelayResponse(result=True, sources=[OK]))
    for command, op in (
        ("start-relay", kinds.OP_START),
        ("stop-relay", kinds.OP_STOP),
        ("pause-relay", kinds.OP_PAUSE),
        ("resume-relay", kinds.OP_RESUME),
    ):
        workers = ["w1", "w2"] if command in ("start-relay", "stop-relay") else []
        _no_error(dmctl(command, "-s", "mysql-01,mysql-02", *workers, address=master.address))
        assert master.requests[-1] == kinds(op=op, sources=["mysql-01", "mysql-02"])
        ran = dmctl(command, address=master.address)
        assert (ran.code, "needs at least one source" in ran.error) == (2, True)


def test_check_task(master: CannedMaster, task_file: Path) -> None:
    passed = CheckResult(name="version", state=CHECK_STATE_PASS, source="mysql-01")
    failed = CheckResult(
        name="dump_privilege", state=CHECK_STATE_FAIL, source="mysql-01", error_msg="no SELECT", code=12001
    )
    master.answer(
        "CheckTask",
        pb.CheckTaskResponse(result=True, check_result=[passed]),
        pb.CheckTaskResponse(result=False, msg="a check failed", check_result=[passed, failed]),
    )
    _no_error(dmctl("check-task", str(task_file), address=master.address))
    ran = dmctl("check-task", str(task_file), address=master.address)
    assert ran.code == 1
    assert "[80011 checks-failed]" in ran.error
    assert [check["state"] for check in ran.json["checkResult"]] == ["success", "fail"]


def test_list_member(master: CannedMaster) -> None:
    master.answer(
        "ListMember",
        pb.ListMemberResponse(result=True, workers=[pb.WorkerMember(name="w1", addr="h:1", stage="free")]),
    )
    ran = dmctl("list-member", "-w", "-n", "w1,w2", address=master.address)
    _no_error(ran)
    assert ran.json["workers"] == [{"name": "w1", "addr": "h:1", "stage": "free", "source": ""}]
    _no_error(dmctl("list-member", address=master.address))
    assert master.requests == [
        pb.ListMemberRequest(worker=True, names=["w1", "w2"]),
        pb.ListMemberRequest(leader=True, master=True, worker=True),
    ]


def test_purge_relay_asks_per_source_and_tells_what_went(master: CannedMaster) -> None:
    went = pb.SourcePurge(result=True, source="mysql-01", worker="w1", purged_segments=2, purged_bytes=1 << 28)
    bad = pb.SourcePurge(result=False, source="mysql-02", error=canned.detail(message="source mysql-02: it broke"))
    master.answer(
        "PurgeRelay",
        pb.PurgeRelayResponse(result=True, sources=[went]),
        pb.PurgeRelayResponse(result=False, sources=[went, bad]),
    )
    ran = dmctl("purge-relay", "-s", "mysql-01", "--filename", "mysql-bin.000006", address=master.address)
    _no_error(ran)
    [part] = ran.json["sources"]
    assert (part["purgedSegments"], part["purgedBytes"], part["kept"]) == ("2", "268435456", "")
    named = ("-s", "mysql-01,mysql-02", "-s", "x", "-f", "mysql-bin.000006", "--sub-dir", "abc")
    ran = dmctl("purge-relay", *named, address=master.address)
    assert ran.code == 1
    assert ran.error == "error: [40001 key-collision] source mysql-02: it broke"
    assert master.requests == [
        pb.PurgeRelayRequest(sources=["mysql-01"], filename="mysql-bin.000006"),
        pb.PurgeRelayRequest(sources=["mysql-01", "mysql-02", "x"], filename="mysql-bin.000006", sub_dir="abc"),
    ]
    for lacks, what in ((("-s", "mysql-01"), "--filename"), (("-f", "mysql-bin.000006"), "-s")):
        ran = dmctl("purge-relay", *lacks, address=master.address)
        assert ran.code == 2
        assert what in ran.error
    assert len(master.requests) == 2


LOCK = pb.DDLLock(
    id="merge-`shop`.`orders`",
    task="merge",
    mode="pessimistic",
    owner="mysql-01",
    ddls=["ALTER TABLE `shop`.`orders` ADD COLUMN c INT"],
    synced=["mysql-01"],
    unsynced=["mysql-02"],
    stage="gathering",
    waiting_for="shard table(s) mysql-02 `s`.`o` come to the statement",
    tables=[pb.DDLLockTable(source="mysql-02", schema="s", table="o", standing="missing")],
)


@pytest.mark.parametrize("command", ["shard-ddl-lock", "show-ddl-locks"])
def test_locks_are_listed_with_dm_names(command: str, master: CannedMaster, task_file: Path) -> None:
    master.answer("ShowDDLLocks", pb.ShowDDLLocksResponse(result=True, locks=[LOCK]))
    ran = dmctl(command, address=master.address)
    _no_error(ran)
    [lock] = ran.json["locks"]
    dm = {name: lock[name] for name in ("ID", "task", "mode", "owner", "DDLs", "synced", "unsynced")}
    assert dm == {
        "ID": "merge-`shop`.`orders`",
        "task": "merge",
        "mode": "pessimistic",
        "owner": "mysql-01",
        "DDLs": ["ALTER TABLE `shop`.`orders` ADD COLUMN c INT"],
        "synced": ["mysql-01"],
        "unsynced": ["mysql-02"],
    }
    assert (lock["tables"][0]["standing"], lock["conflict"]) == ("missing", None)
    _no_error(dmctl(command, str(task_file), "-s", "mysql-02", address=master.address))
    assert master.requests == [
        pb.ShowDDLLocksRequest(),
        pb.ShowDDLLocksRequest(task="merge", sources=["mysql-02"]),
    ]


def test_a_lock_is_unlocked_in_both_spellings(master: CannedMaster) -> None:
    master.answer("UnlockDDLLock", pb.UnlockDDLLockResponse(result=True, msg="source mysql-02 runs the statement"))
    for command in (("shard-ddl-lock", "unlock"), ("unlock-ddl-lock",)):
        ran = dmctl(*command, LOCK.id, "-o", "mysql-02", address=master.address)
        _no_error(ran)
        assert ran.json == {"result": True, "msg": "source mysql-02 runs the statement"}
        _no_error(dmctl(*command, LOCK.id, "--force-remove", address=master.address))
        flags = ("-a", "exec", "-d", "s", "-t", "o", "-s", "mysql-01")
        _no_error(dmctl(*command, LOCK.id, *flags, address=master.address))
        assert master.requests[-3:] == [
            pb.UnlockDDLLockRequest(id=LOCK.id, replace_owner="mysql-02"),
            pb.UnlockDDLLockRequest(id=LOCK.id, force_remove=True),
            pb.UnlockDDLLockRequest(id=LOCK.id, action="exec", database="s", table="o", sources=["mysql-01"]),
        ]
    assert len(master.requests) == 6
    assert "show-ddl-locks" not in dmctl("--help").out
    assert "dmctl shard-ddl-lock unlock 'merge-`shop`.`orders`'" in dmctl("shard-ddl-lock", "unlock", "--help").out


# --- failures


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


def test_nobody_at_the_address() -> None:
    port = free_port()
    ran = dmctl("query-status", "--master-addr", f"127.0.0.1:{port}")
    assert (ran.code, ran.out) == (1, "")
    assert "[80002 master-unreachable]" in ran.error
    assert f"127.0.0.1:{port}: connection refused" in ran.error
    assert "--master-addr or DM_MASTER_ADDR" in ran.err


def test_a_server_of_another_kind_at_the_address(make_listener: str) -> None:
    ran = dmctl("query-status", address=make_listener)
    assert ran.code == 1
    assert "it is no dm-master" in ran.error


@pytest.fixture
def make_listener() -> Iterator[str]:
    """A TCP listener that never answers."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_next_address_is_tried(master: CannedMaster) -> None:
    master.answer("QueryStatus", TASKS)
    _no_error(dmctl("query-status", address=f"127.0.0.1:{free_port()},{master.address}"))


def test_it_follows_to_the_leader(master: CannedMaster) -> None:
    follower = CannedMaster()
    try:
        follower.answer("QueryStatus", errors.master.NOT_LEADER(master="m2", leader="m1", address=master.address))
        master.answer("QueryStatus", TASKS)
        ran = dmctl("query-status", address=follower.address)
        _no_error(ran)
        assert ran.json["tasks"][0]["taskName"] == "merge"
        assert (len(follower.requests), len(master.requests)) == (1, 1)
    finally:
        follower.stop()


def test_it_waits_for_an_election(master: CannedMaster) -> None:
    elsewhere = errors.master.NOT_LEADER(master="m2", leader="m1", address=f"127.0.0.1:{free_port()}")
    master.answer("QueryStatus", errors.master.NO_LEADER(master="m2"), elsewhere, TASKS)
    _no_error(dmctl("query-status", address=master.address))
    assert len(master.requests) == 3


@pytest.fixture
def silent(master: CannedMaster) -> Iterator[None]:
    """The master answers query-status only when the test is over."""
    over = threading.Event()

    def answer(_: Any) -> pb.QueryStatusResponse:
        over.wait(60)
        return TASKS

    master.answer("QueryStatus", answer)
    yield
    over.set()


@pytest.mark.usefixtures("silent")
def test_a_deadline(master: CannedMaster) -> None:
    ran = dmctl("query-status", "--rpc-timeout", "300ms", address=master.address)
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
        (("--ssl-ca", "ca.pem", "query-status"), 1, "TLS"),
        (("-config", "nowhere.toml", "query-status"), 1, "nowhere.toml"),
        (("start-task", "x.yaml", "--start-time", "2024-01-01"), 1, "[10008 start-unreadable] 2024-01-01"),
        (("check-task", "x.yaml", "--stop-at", "mysql-bin.000001"), 1, "[10009 stop-unreadable] mysql-bin.000001"),
    ],
)
def test_what_is_wrong_before_anything_is_sent(arguments: tuple[str, ...], code: int, says: str) -> None:
    ran = dmctl(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.error


# --- watching


def test_watch_in_json_is_one_object_per_line_until_finished(master: CannedMaster) -> None:
    master.answer("QueryStatus", LOADING, FINISHED)
    ran = dmctl("query-status", "merge", "--watch", "--interval", "0.05", address=master.address)
    _no_error(ran)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    stages = [line["sources"][0]["subTaskStatus"][0]["stage"] for line in lines]
    assert stages == ["Running", "Finished"]
    assert lines[0]["sources"][0]["subTaskStatus"][0]["unit"] == "Load"


def test_watch_until_synced(master: CannedMaster) -> None:
    master.answer("QueryStatus", LOADING, BEHIND, errors.master.NO_LEADER(master="m"), SYNCED)
    ran = dmctl("query-status", "merge", "--watch", "--until", "synced", "--interval", "0.05", address=master.address)
    _no_error(ran)
    assert len(ran.out.splitlines()) == 3


def test_watch_ends_when_waiting_makes_no_sense(master: CannedMaster) -> None:
    master.answer("QueryStatus", BROKEN, SYNCED)
    arguments = ("query-status", "merge", "--until", "synced", "--interval", "0.05")
    _no_error(dmctl(*arguments, address=master.address))  # said once only: it may be from before a resume-task
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
        env=_environment(master.address),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""


@pytest.mark.usefixtures("silent")
def test_a_signal_while_the_master_works(master: CannedMaster) -> None:
    process = subprocess.Popen(
        [DMCTL, "query-status"],
        env=_environment(master.address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: master.requests, "the request arrives", 30)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert "[80014 interrupted]" in Ran(process.returncode, out, err).error
    assert process.returncode == 130


# --- on a terminal


class Terminal(terminal.Terminal):
    """dmctl on a pseudo-terminal of 120 × 40."""

    def __init__(self, *arguments: str, address: str) -> None:
        super().__init__([DMCTL, *arguments], _environment(address) | {"COLUMNS": "120", "LINES": "40"})


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
    _no_error(ran)
    assert "✓ synced" in ran.out
    assert "\x1b" not in ran.out
    ran = dmctl("--output", "table", "query-status", "merge", "--until", "synced", address=master.address)
    _no_error(ran)
    assert "In sync." in ran.out
    assert "\x1b" not in ran.out


def test_an_error_on_a_terminal_is_two_lines(master: CannedMaster) -> None:
    master.answer("QueryStatus", errors.master.TASK_UNKNOWN(task="nope"))
    terminal = Terminal("query-status", "nope", address=master.address)
    assert terminal.end() == 1
    assert terminal.text.count("\n") == 2
    assert terminal.text.startswith("\x1b[1;31merror:\x1b[0m [60302 task-unknown] ")


def test_the_live_view_ends_by_ctrl_c_with_0(master: CannedMaster) -> None:
    master.answer("QueryStatus", LOADING, LOADING, BEHIND)
    terminal = Terminal("query-status", "merge", "--watch", "--interval", "0.05", address=master.address)
    until(lambda: "catching up" in terminal.read(), "the view shows both phases", 60)
    assert "copying history" in terminal.text
    assert "━" in terminal.text
    assert "shop_01.orders_01" in terminal.text
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text
    assert terminal.text.rstrip().endswith("\x1b[?25h")  # the cursor is back


def test_the_live_view_ends_when_synced(master: CannedMaster) -> None:
    master.answer("QueryStatus", LOADING, BEHIND, SYNCED)
    terminal = Terminal("query-status", "merge", "--until", "synced", "--interval", "0.05", address=master.address)
    assert terminal.end() == 0
    assert "In sync." in terminal.text


# --- the example


def test_the_example_client(master: CannedMaster, task_file: Path) -> None:
    master.answer("StartTask", pb.StartTaskResponse(result=True, sources=[OK])).answer("QueryStatus", LOADING, SYNCED)
    done = _example(master.address, task_file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "in sync"
    assert "merge: snapshot 399999 of 1000000 rows" in done.stdout or "snapshot 400000 of 1000000" in done.stdout
    master.answer("QueryStatus", BROKEN)
    done = _example(master.address, task_file)
    assert done.returncode == 1
    assert "[40001 key-collision]" in done.stdout
    master.answer("StartTask", errors.master.TASK_EXISTS(task="merge", sources="mysql-01"))
    assert "[60301 task-exists]" in _example(master.address, task_file).stdout


def _example(address: str, task_file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLE, address, task_file, "merge"], capture_output=True, text=True, timeout=60, check=False
    )
