"""What the servers of the tests have in common: their process."""

from __future__ import annotations

import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tests.support.wait import until


class Server(ABC):
    """One server process with a log of its own in ``directory``; started, disturbed and ended by the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> Server:
        """Start and wait until it answers; after :meth:`kill` on the same data and ports."""

    @abstractmethod
    def _answers(self) -> bool: ...

    def _launch(self, name: str, command: Sequence[str]) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until(lambda: self._lives(name) and self._answers(), f"{name} answers (see {self.directory}/server.log)")

    def _lives(self, name: str) -> bool:
        if not self.is_running:
            raise AssertionError(f"{name} ended: see {self.directory}/server.log")
        return True

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP makes a server that is there and silent, SIGCONT ends that."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9 and wait for the end; :meth:`start` brings it back."""
        if self._process is not None and self.is_running:
            self._process.kill()
            self._process.wait()

    def ensure_running(self) -> None:
        if not self.is_running:
            self.start()

    def stop(self) -> None:
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
