"""Runs a command on a terminal of its own: reads its output and sends it keys."""

from __future__ import annotations

import codecs
import os
import pty
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.wait import until


class Terminal:
    """A command on a terminal. ``text``: its output since the last :meth:`press`, or since its start."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str], cwd: Path | None = None) -> None:
        self._reader, writer = pty.openpty()
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""
        self.process = subprocess.Popen(
            command, env=environment, cwd=cwd, stdin=writer, stdout=writer, stderr=writer, start_new_session=True
        )
        os.close(writer)

    def read(self) -> str:
        """Return all output so far."""
        while select.select([self._reader], [], [], 0)[0]:
            try:
                piece = os.read(self._reader, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            self.text += self._decoder.decode(piece)
        return self.text

    def press(self, keys: str) -> None:
        """Send keys, and discard the output before them."""
        self.text = ""
        self.type(keys)

    def type(self, keys: str) -> None:
        os.write(self._reader, keys.encode())

    def shows(self, *words: str) -> None:
        until(lambda: all(word in self.read() for word in words), f"the terminal shows {words}")

    def end(self) -> int:
        """Wait until the command has ended by itself; return its exit code."""
        until(lambda: (self.read(), self.process.poll() is not None)[1], "dmctl ends")
        self.read()
        os.close(self._reader)
        return self.process.returncode
