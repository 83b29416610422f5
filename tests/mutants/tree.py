"""A copy of the working tree, and the processes that run in it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BUILT = re.compile(r"\.so$|_pb2(_grpc)?\.pyi?$")

_children: set[int] = set()


@dataclass(frozen=True)
class Finished:
    """The end of one process: its exit code, what it printed, and its times with those of its children."""

    code: int
    output: str
    seconds: float
    processor: float


def execute(command: Sequence[str], cwd: Path, **variables: str) -> Finished:
    # A session of its own: an interrupt at the terminal reaches it once, from here.
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env={**os.environ, **variables}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        _children.add(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        _children.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        processor = usage.ru_utime + usage.ru_stime
        return Finished(process.returncode, output.read(), time.monotonic() - start, processor)


def _git_files(*options: str) -> list[str]:
    command = ["git", "ls-files", "-z", "--exclude-standard", *options]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name]


def copy_tree(to: Path) -> Path:
    """Copy what git knows or would add, and the built modules, so that new tests need no commit first."""
    built = [name for name in _git_files("-o", "-i", "--", "worker", "proto") if _BUILT.search(name)]
    for name in (*_git_files("-c", "-o"), *built):
        source, place = ROOT / name, to / name
        if source.is_symlink() or source.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place, follow_symlinks=False)
    return to


def interrupt_children() -> None:
    """Interrupt what :func:`execute` runs now, and wait until it has stopped its servers."""
    for child in tuple(_children):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGINT)
            os.waitpid(child, 0)
