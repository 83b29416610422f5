"""Tests `dmctl history`, as a subprocess, against prepared answers."""

from __future__ import annotations

import time

import pytest

from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state
from tests.integration.dmctl_rig import dmctl, master, no_error
from tests.support.canned_master import CannedMaster

__all__ = ["master"]

_ANSWER = pb.HistoryResponse(
    result=True,
    entries=[state.HistoryRecord(kind="command", text="pause-task", actor="alice", first=1, last=1, count=1)],
    samples=[state.HistorySample(at=1, rate=5, sources=1, unknown=1)],
    exists=True,
)


def test_options_and_answer(master: CannedMaster) -> None:
    master.answer("History", _ANSWER)
    ran = dmctl("history", "merge", address=master.address)
    no_error(ran)
    assert master.requests[-1] == pb.HistoryRequest(task="merge", limit=200)
    assert (ran.json["entries"][0]["text"], ran.json["entries"][0]["actor"]) == ("pause-task", "alice")
    assert ran.json["samples"][0]["lag"] is None
    ran = dmctl(
        "history", "merge", "--since", "2d", "--kind", "error", "--kind", "sample", "-s", "a,b", "--limit", "0",
        "--output", "table", address=master.address,
    )  # fmt: skip
    no_error(ran)
    assert "pause-task" in ran.out
    request = master.requests[-1]
    assert (list(request.kinds), list(request.sources), request.limit) == (["error", "sample"], ["a", "b"], 0)
    assert 0 <= time.time() - 2 * 86_400 - request.since < 60


@pytest.mark.parametrize("words", [("--since", "yesterday"), ("--kind", "weather"), ("--limit", "-1"), ()])
def test_wrong_options(master: CannedMaster, words: tuple[str, ...]) -> None:
    ran = dmctl("history", *(("merge", *words) if words else ()), address=master.address)
    assert ran.code == 2
    assert not master.requests
