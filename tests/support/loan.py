"""Borrows started servers from the kept world and returns them: the test's side.

`bash tests/run.sh world` keeps servers and a cluster running (tests/support/kept_world.py); a run of the suite keeps
its own. When a test's server or cluster has the default options, it is borrowed from there instead of started. Each is
lent to one test process at a time. The loan ends with the connection to the keeper, so it also ends when the test
process is killed.

A test may do everything with a borrowed process. When it sends a signal, or reads the process id, the process is
*taken*: the keeper replaces it after the loan. Otherwise it is reset and lent again.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]

STATE = Path(
    os.environ.get("SHARDMERGE_WORLD_STATE") or Path(__file__).resolve().parents[1] / ".run" / "world" / "state.json"
)
"""Where the keeper writes its process id, its folder and the path of its socket: that of this checkout, or that of one
run of tests/run.sh."""

OFF = "SHARDMERGE_NO_WORLD"
"""A test process with this variable does not borrow."""

_PAUSE = 0.02

_open: list[Loan] = []
_allowed = threading.Event()


def allow() -> None:
    """Let this process borrow from now on: for tests only, not for benchmarks, the soak, and the keeper itself."""
    if not os.environ.get(OFF):
        _allowed.set()


def borrow(kind: str, **wishes: int) -> Loan | None:
    """Return a loan of this kind; None when no world is kept, or all parts of this kind are lent."""
    if not _allowed.is_set():
        return None
    connection = connect()
    if connection is None:
        return None
    loan = Loan(connection)
    facts = loan.ask({"want": kind, "pid": os.getpid(), **wishes})
    if not facts:
        connection.close()
        return None
    loan.facts = facts
    _open.append(loan)
    return loan


def connect() -> socket.socket | None:
    """Return a connection to the keeper; None when none runs."""
    try:
        path = json.loads(STATE.read_text(encoding="utf-8"))["socket"]
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
    except (OSError, ValueError):
        return None
    return connection


def borrowed_folders() -> list[Path]:
    """Return the directories of all servers and clusters that this process has borrowed now."""
    return [loan.directory for loan in _open]


class Loan:
    """One borrowed server or cluster. ``facts``: its directory, ports and process ids."""

    def __init__(self, connection: socket.socket) -> None:
        self.facts: Json = {}
        self.taken = False
        self._connection = connection
        self._file = connection.makefile("rw", encoding="utf-8")
        self._lock = threading.Lock()

    @property
    def directory(self) -> Path:
        return Path(self.facts["directory"])

    def ask(self, request: Json) -> Json:
        """Return the keeper's answer; {} when the keeper has ended."""
        with self._lock:
            try:
                self._file.write(json.dumps(request) + "\n")
                self._file.flush()
                return json.loads(self._file.readline() or "{}")
            except OSError:
                return {}

    def take(self) -> None:
        """Mark the part as taken: the keeper replaces it after the loan."""
        if not self.taken:
            self.taken = True
            self.ask({"take": True})

    def end(self) -> None:
        _open.remove(self)
        self._file.close()
        self._connection.close()


class LentProcess:
    """A process of the keeper, used like a ``subprocess.Popen``: the keeper signals and reaps it."""

    def __init__(self, loan: Loan, pid: int) -> None:
        self._loan = loan
        self._pid = pid
        self._code: int | None = None

    @property
    def pid(self) -> int:
        """Return the process id, and mark the process as taken: a test that uses the id may disturb the process or its
        children."""
        self._loan.take()
        return self._pid

    def poll(self) -> int | None:
        if self._code is None:
            answer = self._loan.ask({"poll": self._pid})
            self._code = answer.get("code", -signal.SIGKILL)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            code = self.poll()
            if code is not None:
                return code
            if deadline is not None and time.monotonic() > deadline:
                assert timeout is not None
                raise subprocess.TimeoutExpired(f"process {self._pid}", timeout)
            time.sleep(_PAUSE)

    def send_signal(self, number: int) -> None:
        self._loan.take()
        self._loan.ask({"signal": int(number), "process": self._pid})

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
