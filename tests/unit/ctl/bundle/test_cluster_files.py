"""Answers of a master become files, and what failed is listed."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from shardmerge.ctl.bundle.cluster_files import current_errors, cut_tables, of_config, of_members, of_status, warnings
from shardmerge.ctl.bundle.contents import BundleFile, NotCollected, readme
from shardmerge.ctl.bundle.daemon_files import files_of
from shardmerge.proto import diagnostics_pb2, errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_to_proto


def _status() -> pb.QueryStatusResponse:
    answer = pb.QueryStatusResponse(result=True)
    for source in ("s1", "s2"):
        part = answer.sources.add(result=True)
        part.source_status.source = source
        for task in ("t1", "t2"):
            part.sub_task_status.append(worker_pb2.SubTaskStatus(name=task))
    answer.sources[1].sub_task_status[0].result.errors.append(error_to_proto(errors.master.TASK_UNKNOWN(task="x")))
    unknown = error_to_proto(errors.master.SOURCE_UNBOUND(source="s3"))
    answer.sources.add(result=False, error=unknown).source_status.source = "s3"
    return answer


def test_the_status_has_a_file_for_each_task() -> None:
    items = list(of_status(_status()))
    files = {item.name: json.loads(item.text) for item in items if isinstance(item, BundleFile)}
    assert set(files) == {
        "status/task-t1.json",
        "status/task-t2.json",
        "status/sources-without-answer-or-task.json",
    }
    sources = files["status/task-t1.json"]["sources"]
    assert [part["sourceStatus"]["source"] for part in sources] == ["s1", "s2"]
    assert [[one["name"] for one in part["subTaskStatus"]] for part in sources] == [["t1"], ["t1"]]
    [missing] = [item for item in items if isinstance(item, NotCollected)]
    assert "s3" in missing.what and missing.error.startswith(f"[{errors.master.SOURCE_UNBOUND.code} ")


def test_the_current_errors_name_task_and_source() -> None:
    [line] = current_errors(_status())
    assert line.startswith("task t1 on source s2: [60302 ")


def test_members_that_need_a_look_are_warned_of() -> None:
    answer = pb.ListMemberResponse(
        masters=[pb.MasterMember(name="m1", insecure=True)],
        workers=[pb.WorkerMember(name="w1", stage="offline", source="s1"), pb.WorkerMember(name="w2", stage="free")],
    )
    assert list(warnings(answer)) == [
        "master m1 is not protected: its file has insecure: true",
        "worker w1 is offline, and holds source s1",
        "no master leads",
    ]
    assert json.loads(of_members(answer).text)["workers"][0]["name"] == "w1"


def test_an_old_master_that_masks_nothing_is_no_leak() -> None:
    stored = pb.StoredConfig(name="a/b", cfg="from: {password: Geheim-4711}  # Geheim-4711\n")
    file = of_config("source", stored)
    assert file.name == "config/sources/a%2Fb.yaml" and "Geheim" not in file.text


def test_a_daemon_that_does_not_answer_is_listed() -> None:
    error = error_to_proto(errors.master.PEER_TIMEOUT(peer="worker w1 (h:1)"))
    [item] = files_of(diagnostics_pb2.DiagnosticsPart(kind="worker", name="w1", error=error))
    assert isinstance(item, NotCollected)
    text = readme("Made.", [], ["w | x"], [BundleFile("a|b.json", "", "x")], [item]).text
    assert "the diagnostics of worker w1: [60802 peer-timeout]" in text
    assert f"What to do: {item.workaround}" in text
    assert "| `a\\|b.json` | x |" in text


def test_texts_of_others_control_no_terminal() -> None:
    marks = "x\x1b]0;title\x07"
    item = NotCollected(what=marks, error=marks, workaround=marks)
    assert not set(readme("Made.", [marks], [marks], [BundleFile(marks, "", marks)], [item]).text) & {"\x1b", "\x07"}


def test_the_progress_of_very_many_tables_is_cut() -> None:
    answer = pb.QueryStatusResponse(result=True)
    status = worker_pb2.SubTaskStatus(name="t1")
    for load in (status.load, status.join.load):
        load.tables.extend(worker_pb2.TableProgress(source_table=str(number)) for number in range(1024))
    answer.sources.add(result=True).sub_task_status.append(status)
    [missing] = cut_tables(answer)
    assert "for 1848 tables" in missing.what
    [cut] = answer.sources[0].sub_task_status
    assert (len(cut.load.tables), len(cut.join.load.tables)) == (100, 100)
    assert list(cut_tables(answer)) == [] and len(cut.load.tables) == 100


def test_a_daemon_cannot_leave_its_folder() -> None:
    part = diagnostics_pb2.DiagnosticsPart(kind="../..", name="../../w1", daemon=diagnostics_pb2.DaemonDiagnostics())
    for item in files_of(part):
        assert isinstance(item, BundleFile)
        assert item.name.startswith("daemons/") and ".." not in PurePosixPath(item.name).parts


def test_the_log_shows_where_lines_were_dropped() -> None:
    part = diagnostics_pb2.DiagnosticsPart(kind="worker", name="w1")
    part.daemon.log.CopyFrom(diagnostics_pb2.KeptLines(first=['{"event":"a"}'], last=['{"event":"b"}'], dropped=7))
    texts = {item.name: item.text for item in files_of(part) if isinstance(item, BundleFile)}
    lines = [json.loads(line) for line in texts["daemons/worker-w1/log.jsonl"].splitlines()]
    assert lines == [{"event": "a"}, {"event": "lines that were dropped here", "count": 7}, {"event": "b"}]
