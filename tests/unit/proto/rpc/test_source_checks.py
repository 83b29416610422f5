"""The way out of a source that cannot be used depends on whether it is stored."""

from __future__ import annotations

import pytest

from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.rpc.source_checks import source_failure

_STORED = "`dmctl operate-source update <source-file>`; then `dmctl resume-task <task>`"
_GRANT = "GRANT REPLICATION SLAVE ON *.* TO 'dm'@'%';"


def _failed(name: str, instruction: str) -> pb.CheckResult:
    return pb.CheckResult(
        name=name, state=pb.CHECK_STATE_FAIL, code=12003, error_msg="no login", instruction=instruction
    )


def _way_out(name: str, instruction: str, *, is_new: bool) -> str:
    passed = pb.CheckResult(name="version", state=pb.CHECK_STATE_WARN)
    failure = source_failure([passed, _failed(name, instruction)], "s1", is_new=is_new)
    assert failure is not None
    assert failure.message == f"source s1 cannot be used: [12003] {name}: no login"
    return failure.workaround


def test_a_stored_source_has_the_way_out_of_the_check() -> None:
    assert _way_out("connection", _STORED, is_new=False) == _STORED
    assert _way_out("version", "", is_new=False) == "Correct it and repeat the command."


@pytest.mark.parametrize("item", ["connection", "replication_privilege"])
def test_a_new_source_is_created_again(item: str) -> None:
    """No task is paused, and there is nothing to update."""
    text = _way_out(item, _STORED if item == "connection" else _GRANT, is_new=True)
    assert "`dmctl operate-source create <source-file>`" in text and "Nothing was stored" in text
    assert "update" not in text and "resume-task" not in text
    if item != "connection":
        assert text.startswith(f"{_GRANT}\n"), "the statement can be run as it is"


def test_nothing_has_failed() -> None:
    assert source_failure([pb.CheckResult(state=pb.CHECK_STATE_WARN)], "s1", is_new=True) is None
