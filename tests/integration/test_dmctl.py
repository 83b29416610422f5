"""Tests the real dmctl, as a subprocess, against a server that implements the Master contract with prepared answers."""

from __future__ import annotations

from pathlib import Path

from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.worker_pb2 import CHECK_STATE_FAIL, CHECK_STATE_PASS, CheckResult, RemainingTable
from tests.integration.dmctl_rig import OK, SYNCED, TASKS, dmctl, master, no_error, task_file
from tests.support import canned_master as canned
from tests.support.canned_master import CannedMaster

__all__ = ["master", "task_file"]


def test_no_command_is_help_and_version_is_reported() -> None:
    for arguments in ((), ("--help",), ("help",)):
        ran = dmctl(*arguments)
        no_error(ran)
        for command in ("operate-source", "check-task", "start-task", "query-status", "list-member", "stop-task"):
            assert command in ran.out
    for spelling in ("-V", "--version", "-version"):
        assert dmctl(spelling).out.startswith("dmctl 0.")
    assert "--remove-meta" in dmctl("help", "start-task").out


def test_query_status_in_a_pipe_is_json_with_dm_names(master: CannedMaster) -> None:
    master.answer("QueryStatus", TASKS, SYNCED)
    ran = dmctl("query-status", address=master.address)
    no_error(ran)
    assert ran.json == {
        "result": True,
        "msg": "",
        "tasks": [{"taskName": "merge", "taskStatus": "Running", "sources": ["mysql-01"], "warnings": []}],
    }
    ran = dmctl("--master-addr", master.address, "query-status", "merge", "-s", "mysql-01,mysql-02", "-s", "x")
    no_error(ran)
    subtask = ran.json["sources"][0]["subTaskStatus"][0]
    assert (subtask["stage"], subtask["unit"], subtask["sync"]["synced"]) == ("Running", "Sync", True)
    assert master.requests[-1] == pb.QueryStatusRequest(name="merge", sources=["mysql-01", "mysql-02", "x"])


def test_more_without_a_task_asks_for_all_sources(master: CannedMaster) -> None:
    master.answer("QueryStatus", TASKS, SYNCED)
    ran = dmctl("query-status", "--more", address=master.address)
    no_error(ran)
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
        no_error(ran)
        assert ran.json["sources"][0] == {
            "result": True,
            "msg": "",
            "source": "mysql-01",
            "worker": "w1",
            "error": None,
        }
        assert master.requests[-1] == pb.OperateTaskRequest(op=op, name="merge", sources=["mysql-01"])
    no_error(dmctl("stop-task", "-s", "mysql-01", address=master.address))
    assert master.requests[-1] == pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_STOP, sources=["mysql-01"])


def test_stop_task_removes_records_and_names_what_stays(master: CannedMaster, task_file: Path) -> None:
    left = RemainingTable(target="shop.orders", rows=100000, at_least=True, is_shared=True)
    canned = pb.OperateTaskResponse(result=True, op="Stop", sources=[OK], remaining=[left], msg="The rows stay.")
    master.answer("OperateTask", canned)
    stop = pb.OperateTaskRequest.OP_STOP
    ran = dmctl("--output", "table", "stop-task", str(task_file), "--remove-meta", address=master.address)
    no_error(ran)
    sent = pb.ConfigFile(name=str(task_file), content="name: merge\ntask-mode: all\n")
    assert master.requests[-1] == pb.OperateTaskRequest(op=stop, name="merge", remove_meta=True, file=sent)
    assert all(word in ran.out for word in ("shop.orders", "100000 or more", "also of another task", "The rows stay."))
    no_error(dmctl("stop-task", "merge", "--remove-meta=true", address=master.address))
    assert master.requests[-1] == pb.OperateTaskRequest(op=stop, name="merge", remove_meta=True)


def test_start_task_sends_the_file(master: CannedMaster, task_file: Path) -> None:
    master.answer("StartTask", pb.StartTaskResponse(result=True, sources=[OK]))
    no_error(dmctl("start-task", str(task_file), "--remove-meta", "-s", "mysql-01", address=master.address))
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
    no_error(dmctl("operate-source", "create", str(file), "-w", "w1", address=master.address))
    no_error(dmctl("operate-source", "show", address=master.address))
    no_error(dmctl("operate-source", "stop", str(file), "mysql-02", address=master.address))
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
    no_error(ran)
    assert master.requests[-1] == kinds(op=kinds.OP_UPDATE, files=[sent, sent], dry_run=True)
    assert all(word in ran.out for word in ("from.port", "3306", "3307", "goes on there"))
    no_error(dmctl("operate-source", "show", str(file), "mysql-02", address=master.address))
    assert master.requests[-1] == kinds(op=kinds.OP_SHOW, files=[sent], source_ids=["mysql-02"])
    ran = dmctl("operate-source", "-p")
    no_error(ran)
    assert "source-id:" in ran.out


def test_transfer_source(master: CannedMaster) -> None:
    master.answer("TransferSource", pb.TransferSourceResponse(result=True, sources=[OK]))
    no_error(dmctl("transfer-source", "mysql-01", "w2", address=master.address))
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
        no_error(dmctl(command, "-s", "mysql-01,mysql-02", *workers, address=master.address))
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
    no_error(dmctl("check-task", str(task_file), address=master.address))
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
    no_error(ran)
    assert ran.json["workers"] == [
        {"name": "w1", "addr": "h:1", "stage": "free", "source": "", "insecure": False, "warnings": []}
    ]
    no_error(dmctl("list-member", address=master.address))
    assert master.requests == [
        pb.ListMemberRequest(worker=True, names=["w1", "w2"]),
        pb.ListMemberRequest(leader=True, master=True, worker=True),
    ]


def test_purge_relay_asks_per_source_and_reports_what_went(master: CannedMaster) -> None:
    went = pb.SourcePurge(result=True, source="mysql-01", worker="w1", purged_segments=2, purged_bytes=1 << 28)
    bad = pb.SourcePurge(result=False, source="mysql-02", error=canned.detail(message="source mysql-02: it broke"))
    master.answer(
        "PurgeRelay",
        pb.PurgeRelayResponse(result=True, sources=[went]),
        pb.PurgeRelayResponse(result=False, sources=[went, bad]),
    )
    ran = dmctl("purge-relay", "-s", "mysql-01", "--filename", "mysql-bin.000006", address=master.address)
    no_error(ran)
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
