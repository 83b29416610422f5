"""Answers as tables."""

from __future__ import annotations

from shardmerge.ctl import as_json
from shardmerge.ctl.render import status_table, tables
from shardmerge.proto import common_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.worker_pb2 import (
    CHECK_STATE_FAIL,
    CHECK_STATE_PASS,
    CHECK_STATE_WARN,
    CheckResult,
    PauseLimit,
    StatusWarning,
)
from tests.support import canned_master as canned
from tests.unit.ctl.render.drawing import draw


def _result(source: str, *, failed: bool = False) -> pb.SourceResult:
    if failed:
        return pb.SourceResult(result=False, source=source, error=canned.detail(message=f"boom [red]{source}"))
    return pb.SourceResult(result=True, source=source, worker="w1", msg="started")


def test_one_row_per_source() -> None:
    text = draw(tables.operate_source(pb.OperateSourceResponse(result=True, sources=[_result("a"), _result("b")])))
    assert text.count("✓ done") == 2
    assert "started" in text


def test_an_unusable_source_is_explained_although_the_command_has_succeeded() -> None:
    source = pb.SourceResult(result=True, source="a", worker="w1", error=canned.detail(message="no login"))
    text = draw(tables.operate_source(pb.OperateSourceResponse(result=True, sources=[source])))
    assert "no login" in text and "what to do: keep the shards' keys apart" in text


def test_markup_in_names_is_text() -> None:
    answer = pb.OperateTaskResponse(result=True, sources=[pb.SourceResult(result=True, source="[bold]x[/]\x1b[31m")])
    text = draw(tables.operate_task(answer))
    assert "[bold]x[/] [31m" in text
    assert "\x1b" not in text


def test_several_failures_are_explained_below_a_single_one_on_stderr_only() -> None:
    one = pb.StartTaskResponse(result=False, sources=[_result("a"), _result("b", failed=True)])
    assert "what to do" not in draw(tables.start_task(one))
    assert "[40001 key-collision]" in draw(tables.start_task(one))
    two = pb.StartTaskResponse(result=False, sources=[_result("a", failed=True), _result("b", failed=True)])
    text = draw(tables.start_task(two))
    assert text.count("what to do: keep the shards' keys apart") == 2
    assert "boom [red]a" in text


def test_purge_relay_reports_what_went_and_why_not_more() -> None:
    answer = pb.PurgeRelayResponse(
        sources=[
            pb.SourcePurge(
                result=True, source="a", worker="w1", purged_segments=3, purged_bytes=3 << 27,
                relay_begin="(mysql-bin.000003, 4)",
            ),
            pb.SourcePurge(
                result=True, source="b", worker="w2", purged_segments=1, purged_bytes=1 << 27,
                relay_begin="(mysql-bin.000001, 4)", kept="task merge needs it from relay offset 1:4 on",
            ),
            pb.SourcePurge(result=True, source="c", relay_begin="(mysql-bin.000009, 4)"),
            pb.SourcePurge(result=False, source="d", error=canned.detail(message="boom")),
        ]
    )  # fmt: skip
    text = draw(tables.purge_relay(answer), width=160)
    assert "3 segments, 384 MiB" in text
    assert "(mysql-bin.000003, 4)" in text
    assert "1 segment, 128 MiB" in text
    assert "task merge needs it from relay offset 1:4 on" in text
    assert "nothing" in text
    assert "[40001 key-collision]" in text


def test_nothing_yet_reports_what_to_do() -> None:
    assert "operate-source create" in draw(tables.operate_source(pb.OperateSourceResponse(result=True)))
    assert "start-task" in draw(tables.task_list(pb.QueryStatusResponse(result=True)))
    assert "no such member" in draw(tables.list_member(pb.ListMemberResponse(result=True)))


def _checks() -> pb.CheckTaskResponse:
    return pb.CheckTaskResponse(
        check_result=[
            CheckResult(name="version", desc="MariaDB 10.11", state=CHECK_STATE_PASS, source="a"),
            *(CheckResult(name=f"warn_{n}", state=CHECK_STATE_WARN, source="a", error_msg="hm") for n in range(3)),
            *(
                CheckResult(
                    name=f"fail_{n}", state=CHECK_STATE_FAIL, source="a", error_msg="no", code=12001,
                    instruction="GRANT SELECT ON *.* TO 'dm'",
                )
                for n in range(4)
            ),
        ]
    )  # fmt: skip


def test_checks_failures_first_with_their_instruction() -> None:
    text = draw(tables.check_task(_checks()))
    assert text.index("fail_0") < text.index("warn_0") < text.index("version")
    assert "[12001] no" in text
    assert "what to do: GRANT SELECT ON *.* TO 'dm'" in text
    assert "1 passed  3 warned  4 failed" in text


def test_the_same_check_of_several_sources_is_one_row() -> None:
    way_out = "set binlog_row_image to FULL"
    some = [
        CheckResult(
            name="binlog_row_image", state=CHECK_STATE_FAIL, source=source, code=12007, instruction=way_out,
            error_msg=f"source {source}: it is MINIMAL",
        )
        for source in ("mysql-01", "mysql-02")
    ]  # fmt: skip
    text = draw(tables.check_task(pb.CheckTaskResponse(check_result=some)))
    assert text.count(way_out) == text.count("mysql-01, mysql-02") == 1
    assert "source mysql-01: it is MINIMAL" in text
    assert "source mysql-02: it is MINIMAL" in text


def test_limits_never_hide_that_there_is_more() -> None:
    text = draw(tables.check_task(_checks(), max_errors=1, max_warnings=0))
    assert "fail_1" not in text
    assert "warn_0" not in text
    assert "4 failed  (6 not shown" in text


def test_start_task_shows_the_checks_that_say_something() -> None:
    answer = pb.StartTaskResponse(result=True, sources=[_result("a")], check_result=_checks().check_result)
    text = draw(tables.start_task(answer))
    assert "warn_0" in text
    assert "version" not in text


def test_notes_on_the_task_file_are_shown_and_coded_errors_left_to_stderr() -> None:
    msg = "[60307 pre-check-failed] task merge: 1\nline 3: loaders.dir: not used here"
    for answer in (
        tables.start_task(pb.StartTaskResponse(msg=msg)),
        tables.check_task(pb.CheckTaskResponse(msg=msg)),
    ):
        text = draw(answer)
        assert "note: line 3: loaders.dir: not used here" in text
        assert "60307" not in text


def test_members() -> None:
    answer = pb.ListMemberResponse(
        result=True,
        leader=pb.MasterMember(name="m1", alive=True, addr="h:1"),
        masters=[pb.MasterMember(name="m1", alive=True, addr="h:1"), pb.MasterMember(name="m2", addr="h:2")],
        workers=[pb.WorkerMember(name="w1", addr="h:3", stage="bound", source="mysql-01")],
    )
    lines = draw(tables.list_member(answer)).splitlines()
    assert any("m1" in line and "leader" in line for line in lines)
    assert any("m2" in line and "offline" in line for line in lines)
    assert any("w1" in line and "bound" in line and "mysql-01" in line for line in lines)
    only = pb.ListMemberResponse(result=True, leader=answer.leader)
    assert "leader" in draw(tables.list_member(only))


def test_the_list_of_tasks_has_a_line_of_warnings_for_each() -> None:
    expiring, clocks = (StatusWarning(name=name, message="m") for name in ("binlog-expiring", "clocks\x1b[31m-differ"))
    warnings = [
        pb.TaskWarning(source="s1", warning=expiring, others=15),
        pb.TaskWarning(source="s2", warning=clocks),
    ]
    tasks = [
        pb.TaskSummary(task_name="a", task_status="Running", sources=["s1"]),
        pb.TaskSummary(task_name="b", task_status="Running", sources=["s1", "s2"], warnings=warnings),
    ]
    text = draw(tables.task_list(pb.QueryStatusResponse(result=True, tasks=tasks)), width=140)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "task status sources warnings"
    assert "a ● Running s1" in lines
    assert "b ● Running s1, s2 binlog-expiring s1 and 15 more, clocks [31m-differ s2" in lines
    assert lines[-1] == "Warnings: `dmctl query-status TASK` shows them, and what to do."
    calm = draw(tables.task_list(pb.QueryStatusResponse(result=True, tasks=tasks[:1])), width=140)
    assert "arnings" not in calm


def test_task_list_colours_an_error() -> None:
    answer = pb.QueryStatusResponse(
        result=True,
        tasks=[
            pb.TaskSummary(task_name="b", task_status="Error - Some error occurred in subtask", sources=["s1"]),
            pb.TaskSummary(task_name="a", task_status="Running", sources=["s1", "s2"]),
        ],
    )
    text = draw(tables.task_list(answer), colour=True)
    assert text.index("Running") < text.index("Error")
    assert "\x1b[1;31mError - Some" in text
    assert "s1, s2" in text


def test_subtasks_of_both_units_and_their_errors() -> None:
    answer = canned.status(
        canned.subtask(canned.loading(0.5)),
        canned.subtask(canned.syncing(synced=True)),
        canned.subtask(
            canned.syncing(synced=False, behind=2048), stage=common_pb2.STAGE_PAUSED, errors=(canned.detail(),)
        ),
        canned.subtask(None, stage=common_pb2.STAGE_NEW, doing="starting Spark"),
    )
    text = draw(status_table.detail(answer), width=160)
    load, synced, paused, new = (line for line in text.splitlines() if "merge  " in line and "worker-" in line)
    assert "Load" in load
    assert "50.00 %, 10.0 s left" in load
    assert "499,998" in load or "500,000 / 1,000,000" in load
    assert "Sync" in synced
    assert "✓ synced" in synced
    assert "7 ms" in synced
    assert "● Paused" in paused
    assert "unknown: it does not run" in paused
    assert "not applied" not in paused
    assert "starting Spark" in new
    assert "[40001 key-collision] row collides" in text
    assert "what to do: keep the shards' keys apart" in text


def test_more_shows_relay_lanes_and_tables() -> None:
    answer = canned.status(canned.subtask(canned.loading(0.5)), canned.subtask(canned.syncing(synced=True)))
    brief, full = draw(status_table.detail(answer)), draw(status_table.detail(answer, more=True))
    assert "Relay of" not in brief
    assert "Relay of mysql-01" in full
    assert "3.0 GiB" in full
    assert "shop_01.orders_01" in full
    assert "source at 0-1-99   applied to 0-1-98" in full
    assert "60,001" in full
    assert "events" in full


def test_a_finished_snapshot_reports_each_table() -> None:
    ended = canned.subtask(canned.loading(1.0), stage=common_pb2.STAGE_FINISHED)
    text = draw(status_table.detail(canned.status(ended)), width=160)
    [line] = (line for line in text.splitlines() if "shop_01.orders_01" in line)
    assert "333,333 / 333,333" in line
    assert "38.1 MiB" in line
    assert "12.5 s" in line
    running = canned.subtask(canned.loading(1.0))
    assert "shop_01.orders_01" not in draw(status_table.detail(canned.status(running)), width=160)


def test_an_end_is_shown_before_and_after_it_is_reached() -> None:
    sync = canned.syncing(synced=False)
    sync.stop_at = "2026-01-02 03:04:05"
    running = canned.status(canned.subtask(sync))
    assert "ends at 2026-01-02 03:04:05" in draw(status_table.detail(running, more=True), width=200)
    ended = canned.status(canned.subtask(sync, stage=common_pb2.STAGE_FINISHED))
    assert f"✓ ended at {sync.syncer_binlog}" in draw(status_table.detail(ended), width=200)


def test_lanes_say_what_they_wait_for_and_why() -> None:
    text = draw(status_table.detail(canned.status(canned.subtask(canned.retrying(1))), more=True), width=160)
    first, second = (line for line in text.splitlines() if line.lstrip(" │┃").startswith(("0 ", "1 ")))
    assert "reading" in first
    assert "12.5 s" in first
    assert "retrying" in second
    assert "attempt 3 after errno 1213" in second
    assert "lane 1, attempt 3 after: Deadlock found" in text


def test_a_source_without_a_subtask() -> None:
    answer = pb.QueryStatusResponse(
        result=True, sources=[pb.SourceSubTasks(result=True, source_status=pb.SourceStatus(source="idle"))]
    )
    assert "no task" in draw(status_table.detail(answer))
    assert "no subtask" in draw(status_table.detail(pb.QueryStatusResponse(result=True)))


_WARNING = StatusWarning(name="binlog-expiring", message="soon [red]gone", workaround="let it fetch", due=5.0)


def test_warnings_of_a_source_are_below_the_table() -> None:
    answer = canned.status(canned.subtask(canned.syncing(synced=True)))
    assert "what to do" not in draw(status_table.detail(answer))
    answer.sources[0].source_status.warnings.append(_WARNING)
    text = draw(status_table.detail(answer))
    assert "! source mysql-01  [binlog-expiring] soon [red]gone" in text
    assert "what to do: let it fetch" in text


def test_more_shows_how_long_a_pause_may_last() -> None:
    answer = canned.status(canned.subtask(canned.syncing(synced=True)))
    relay = answer.sources[0].source_status.relay_status
    relay.task_pause.CopyFrom(PauseLimit(source="mysql-01", text="the task may stay paused for about 2 h"))
    assert "may stay paused" not in draw(status_table.detail(answer))
    assert "the task may stay paused for about 2 h" in draw(status_table.detail(answer, more=True))


def test_a_pause_reports_how_long_it_may_last() -> None:
    limit = PauseLimit(source="a", limit="relay-disk", seconds=7200, text="the task may stay paused for about 2 h")
    task = pb.OperateTaskResponse(result=True, sources=[_result("a")], pause_limits=[limit])
    relay = pb.OperateRelayResponse(result=True, sources=[_result("a")], pause_limits=[limit])
    for text in (draw(tables.operate_task(task)), draw(tables.operate_relay(relay))):
        assert "a: the task may stay paused for about 2 h" in text
    value = as_json.to_value(task)["pauseLimits"]
    assert value == [
        {
            "source": "a",
            "limit": "relay-disk",
            "seconds": 7200.0,
            "unknown": "",
            "text": "the task may stay paused for about 2 h",
        }
    ]


def test_warnings_of_members_are_below_the_tables() -> None:
    leader = pb.MasterMember(name="m1", alive=True, warnings=[_WARNING])
    answer = pb.ListMemberResponse(
        result=True,
        leader=leader,
        masters=[leader],
        workers=[pb.WorkerMember(name="w1", stage="bound", warnings=[_WARNING]), pb.WorkerMember(name="w2")],
    )
    text = draw(tables.list_member(answer))
    assert text.count("[binlog-expiring]") == 2
    assert "! master m1  [binlog-expiring]" in text and "! worker w1  [binlog-expiring]" in text
