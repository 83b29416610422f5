"""Runs the real dmctl as a subprocess, against a server that implements the Master contract with prepared answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardmerge.proto import common_pb2
from shardmerge.proto import master_pb2 as pb
from tests.support import canned_master as canned
from tests.support import terminal
from tests.support.canned_master import CannedMaster

DMCTL = Path(sys.executable).parent / "dmctl"


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
        """Return the first of the two lines on stderr; assert that there are exactly two, well-formed ones."""
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
def silent(master: CannedMaster) -> Iterator[None]:
    """Let the master answer query-status only when the test is over."""
    over = threading.Event()

    def answer(_: Any) -> pb.QueryStatusResponse:
        over.wait(600)
        return TASKS

    master.answer("QueryStatus", answer)
    yield
    over.set()


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    file = tmp_path / "task.yaml"
    file.write_text("name: merge\ntask-mode: all\n")
    return file


def environment(address: str = "") -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("DM_MASTER_ADDR", "NO_COLOR", "COLUMNS")}
    return {**kept, "TERM": "xterm-256color"} | ({"DM_MASTER_ADDR": address} if address else {})


def dmctl(*arguments: str, address: str = "") -> Ran:
    """Run dmctl with pipes."""
    done = subprocess.run(
        [DMCTL, *arguments],
        env=environment(address),
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def no_error(ran: Ran) -> None:
    assert (ran.code, ran.err) == (0, "")


class Terminal(terminal.Terminal):
    """dmctl on a pseudo-terminal of 120 × 40 characters."""

    def __init__(self, *arguments: str, address: str) -> None:
        super().__init__([DMCTL, *arguments], environment(address) | {"COLUMNS": "120", "LINES": "40"})
