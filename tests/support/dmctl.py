"""Runs many dmctl commands quickly: each in its own process, which has imported dmctl already."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence

from tests.support.daemon import ROOT, command

_lock = threading.Lock()
_server: _Server | None = None


class _Server:
    """The process of tests/support/dmctl_server.py; it ends with this one."""

    def __init__(self) -> None:
        # Each request is one message.
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.dmctl_server", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def end(self) -> None:
        self.requests.close()
        self.process.wait()


def _send(request: bytes, descriptors: Sequence[int]) -> None:
    global _server
    with _lock:
        if _server is None:
            _server = _Server()
            atexit.register(_server.end)
        socket.send_fds(_server.requests, [request], descriptors)


def dmctl(
    arguments: Sequence[str], environment: Mapping[str, str], seconds: float, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Like ``subprocess.run`` of dmctl at the repository's root: exit code, stdout and stderr. ``typed``: its input.

    Raises ``subprocess.TimeoutExpired``; the command has been killed then.
    """
    words = [command("dmctl"), *arguments]
    if typed:
        return subprocess.run(
            words, input=typed, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=seconds, check=False
        )
    request = json.dumps({"arguments": words, "environment": dict(environment), "folder": str(ROOT)}).encode()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                _send(request, [theirs.fileno(), out.fileno(), error.fileno()])
            ours.settimeout(seconds)
            code = _ended(ours, words, seconds)
        texts: list[str] = []
        for file in (out, error):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(words, code, *texts)


def _ended(answers: socket.socket, words: Sequence[str], seconds: float) -> int:
    """Return the exit code of the command."""
    pid = 0
    try:
        pid = _number(answers)
        return _number(answers)
    except TimeoutError:
        if pid:
            os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(words, seconds) from None


def _number(answers: socket.socket) -> int:
    text = answers.recv(100)
    assert text, "the process that runs dmctl has ended"
    return int(text)
