"""Defines what the servers of the tests have in common: their process."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.loan import LentProcess, Loan
from tests.support.wait import until


class Server(ABC):
    """One server process with a log of its own in ``directory``; a test starts, disturbs and ends it.

    It may be borrowed (tests/support/loan.py): then ``directory`` is a different one after the start.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | LentProcess | None = None
        self._loan: Loan | None = None
        self._given_back = False
        self.environment: Mapping[str, str] = {}
        """Further variables of the process that :meth:`start` launches."""

    @abstractmethod
    def start(self) -> Server:
        """Start and wait until it answers; after :meth:`kill` with the same data and ports."""

    @abstractmethod
    def _answers(self) -> bool: ...

    def _launch(self, name: str, command: Sequence[str], folder: Path | None = None) -> None:
        """``folder``: its working directory; None: that of the test."""
        assert not self._given_back, f"{name} was borrowed and is given back: shut_down() ends it for a while"
        with (self.directory / "server.log").open("ab") as log:
            environment = {**os.environ, **self.environment}
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=environment, cwd=folder
            )
        until(lambda: self._lives(name) and self._answers(), f"{name} answers (see {self.directory}/server.log)")

    def _lives(self, name: str) -> bool:
        if not self.is_running:
            raise AssertionError(f"{name} ended: see {self.directory}/server.log")
        return True

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code; None while the server runs."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP makes a server that is present but silent, SIGCONT ends that."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9 and wait for the end; :meth:`start` restarts it."""
        if self._process is not None and self.is_running:
            self._process.kill()
            self._process.wait()

    def ensure_running(self) -> None:
        if not self.is_running:
            self.start()

    def stop(self) -> None:
        """End the server for good. A borrowed server that was not disturbed is returned in its current state."""
        if self._loan is None:
            self.shut_down()
            return
        if self._loan.taken:
            self.shut_down()
        self._loan.end()
        self._loan, self._process, self._given_back = None, None, True

    def shut_down(self) -> None:
        """SIGTERM and wait for the end; :meth:`start` restarts it."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
