"""Answers as JSON: DM's names and words."""

from __future__ import annotations

import json
import math

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.ctl import as_json
from shardmerge.ctl.dm_words import enum_word
from shardmerge.proto import common_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.worker_pb2 import CHECK_STATE_FAIL, CHECK_STATE_PASS, CHECK_STATE_WARN, CheckResult, SyncStatus
from tests.support import canned_master as canned


def test_summary_has_the_shape_of_dm() -> None:
    answer = pb.QueryStatusResponse(
        result=True, tasks=[pb.TaskSummary(task_name="merge", task_status="Running", sources=["a", "b"])]
    )
    assert as_json.query_status(answer, detail=False) == {
        "result": True,
        "msg": "",
        "tasks": [{"taskName": "merge", "taskStatus": "Running", "sources": ["a", "b"], "warnings": []}],
    }


def test_detail_of_a_replicating_subtask() -> None:
    value = json.loads(
        as_json.to_text(as_json.query_status(canned.status(canned.subtask(canned.syncing(synced=True))), detail=True))
    )
    assert list(value) == ["result", "msg", "sources"]
    source = value["sources"][0]
    assert source["sourceStatus"]["source"] == "mysql-01"
    assert source["sourceStatus"]["relayStatus"]["stage"] == "Running"
    assert source["sourceStatus"]["relayStatus"]["relayCatchUpMaster"] is True
    subtask = source["subTaskStatus"][0]
    assert (subtask["stage"], subtask["unit"]) == ("Running", "Sync")
    assert subtask["result"] is None
    assert subtask["unresolvedDDLLockID"] == ""
    assert subtask["sync"]["synced"] is True
    assert subtask["sync"]["blockingDDLs"] == []
    assert subtask["sync"]["totalRows"] == "123456"
    assert "load" not in subtask


def test_what_is_not_known_is_null() -> None:
    answer = canned.status(canned.subtask(canned.unknown_progress("lane 1 has not reported for 8 s")))
    value = json.loads(as_json.to_text(as_json.query_status(answer, detail=True)))
    sync = value["sources"][0]["subTaskStatus"][0]["sync"]
    assert sync["unknown"] == "lane 1 has not reported for 8 s"
    assert sync["synced"] is False
    assert [sync[name] for name in ("bytesBehind", "lagMs", "oldestMs", "secondsBehindMaster")] == [None] * 4
    assert [lane["bytesBehind"] for lane in sync["lanes"]] == ["0", None]


def test_a_subtask_that_does_not_run_is_not_in_sync() -> None:
    """A worker of the previous version reports the last known figures."""
    paused = canned.subtask(canned.syncing(synced=True), stage=common_pb2.STAGE_PAUSED)
    value = json.loads(as_json.to_text(as_json.query_status(canned.status(paused), detail=True)))
    sync = value["sources"][0]["subTaskStatus"][0]["sync"]
    assert (sync["synced"], sync["bytesBehind"], sync["unknown"]) == (False, None, "it does not run")


def test_a_snapshot_is_the_unit_load_and_its_defaults_are_printed() -> None:
    value = as_json.to_value(canned.subtask(canned.loading(0.0, rate=0)))
    assert value["unit"] == "Load"
    load = value["load"]
    assert isinstance(load, dict)
    assert load["finishedRows"] == "0"
    assert load["planComplete"] is True
    assert "sync" not in value


def test_errors_keep_their_code_and_words() -> None:
    value = as_json.to_value(
        canned.subtask(canned.syncing(synced=False), stage=common_pb2.STAGE_PAUSED, errors=(canned.detail(),))
    )
    assert value["stage"] == "Paused"
    assert value["result"] == {
        "isCanceled": False,
        "errors": [
            {
                "code": 40001,
                "name": "key-collision",
                "errorClass": "replicate",
                "scope": "target",
                "level": "high",
                "message": "row collides",
                "workaround": "keep the shards' keys apart",
                "retryable": False,
                "args": {"key": "7"},
            }
        ],
    }


def test_check_states_are_the_words_of_dm() -> None:
    states = (CHECK_STATE_PASS, CHECK_STATE_WARN, CHECK_STATE_FAIL)
    assert [as_json.to_value(CheckResult(state=state))["state"] for state in states] == ["success", "warn", "fail"]


def test_a_number_of_a_newer_master_is_shown() -> None:
    assert enum_word("shardmerge.v1.Stage", 99) == "unknown (99)"
    assert enum_word("shardmerge.v2.Nothing", 1) == "unknown (1)"


def test_no_enum_of_the_contract_is_without_a_word() -> None:
    for descriptor in (
        common_pb2.Stage.DESCRIPTOR,
        common_pb2.Unit.DESCRIPTOR,
        common_pb2.ErrorScope.DESCRIPTOR,
        common_pb2.ErrorLevel.DESCRIPTOR,
        CheckResult.DESCRIPTOR.fields_by_name["state"].enum_type,
    ):
        assert descriptor is not None
        for value in descriptor.values:
            word = enum_word(descriptor.full_name, value.number)
            assert "unknown" not in word
            assert word.upper() != value.name


def test_lines_and_indents() -> None:
    value: dict[str, as_json.Json] = {"msg": "Zürich\nII", "n": 1}
    assert as_json.to_text(value, one_line=True) == '{"msg":"Zürich\\nII","n":1}'
    assert as_json.to_text(value).splitlines()[1] == '    "msg": "Zürich\\nII",'


def test_numbers_that_json_does_not_have() -> None:
    texts = [
        as_json.to_value(SyncStatus(seconds_behind_master=value))["secondsBehindMaster"]
        for value in (math.nan, math.inf, -math.inf)
    ]
    assert texts == ["NaN", "Infinity", "-Infinity"]


@given(
    st.builds(
        SyncStatus,
        total_rows=st.integers(0, 2**64 - 1),
        master_binlog=st.text(),
        blocking_ddls=st.lists(st.text(), max_size=3),
        synced=st.booleans(),
        seconds_behind_master=st.floats(allow_nan=False),
    )
)
def test_it_is_protobuf_json(message: SyncStatus) -> None:
    text = as_json.to_text(as_json.to_value(message), one_line=True)
    assert json_format.Parse(text, SyncStatus()) == message
    assert "\n" not in text


@pytest.mark.parametrize("one_line", [False, True])
def test_no_character_controls_a_terminal(*, one_line: bool) -> None:
    value: dict[str, as_json.Json] = {"text": "a\x1b[31mb\x9b31m\x7f\u202eevil\u2028é😀\ud800"}
    text = as_json.to_text(value, one_line=one_line)
    assert all(mark.isprintable() or mark == "\n" for mark in text)
    assert "é😀" in text
    assert json.loads(text) == value
