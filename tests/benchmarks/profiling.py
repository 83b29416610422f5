"""Records where processes spend their time: py-spy for Python lines, perf for all code, if they are installed.

Neither is needed for the figures, and both slow the processes down a little.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_RATE = 99
_MOST = 14
_WAITING = (
    "acquire_lock",
    "PyThread_acquire",
    "take_gil",
    "epoll_wait",
    "poll (",
    "clock_nanosleep",
    "syscall (",
    "recv (",
    "read (libc",
    "read_int (",
    "wait (threading.py",
    "_next_event (grpc",
    "accept (socket.py",
    "select (select",
    "_read_bytes (pymysql",
    "readinto (socket.py",
    "Dump.receive (",
    "_worker (concurrent/futures",
    "consume_request_iterator (grpc",
    "FinalizerWorker.run (py4j",
)
"""Frames in which a thread only waits, even if py-spy reports it as active."""


def beside_python(program: str) -> str | None:
    """Return the program's path, in the environment that runs this or on PATH; None when it is not installed."""
    beside = Path(sys.executable).parent / program
    return str(beside) if beside.exists() else shutil.which(program)


@dataclass(frozen=True, slots=True)
class Hot:
    """A frame with its ``share`` of the samples, 0 … 1."""

    share: float
    frame: str


@dataclass(frozen=True, slots=True)
class Hottest:
    """Frames of the ``samples`` in which a thread did not only wait: by own samples, and by those of the frame and its
    callees."""

    samples: int
    own: tuple[Hot, ...]
    below: tuple[Hot, ...]

    def __str__(self) -> str:
        lines = [f"{self.samples} samples that did not wait; own, then with all below"]
        lines += [f"  {hot.share:6.1%} {hot.frame[:110]}" for hot in self.own]
        lines.append("  --")
        lines += [f"  {hot.share:6.1%} {hot.frame[:110]}" for hot in self.below]
        return "\n".join(lines)


def hottest(folded: Iterable[str], most: int = _MOST) -> Hottest:
    """Return the hottest frames of folded stacks, "outer;…;inner count" a line; stacks that wait are left out."""
    own: Counter[str] = Counter()
    below: Counter[str] = Counter()
    total = 0
    for line in folded:
        stack, _, digits = line.rpartition(" ")
        if not digits.isdigit() or any(waiting in stack for waiting in _WAITING):
            continue
        frames = stack.split(";")
        total += int(digits)
        own[frames[-1]] += int(digits)
        for frame in set(frames):
            below[frame] += int(digits)

    def first(counts: Counter[str]) -> tuple[Hot, ...]:
        return tuple(Hot(count / total, frame) for frame, count in counts.most_common(most))

    return Hottest(total, first(own), first(below))


class Profile:
    """Records processes from :meth:`attach` until :meth:`finish`; files go to ``directory``, named ``label``-…"""

    def __init__(self, directory: Path, label: str, *, native: bool) -> None:
        self._directory = directory
        self._label = label
        self._native = ["--native"] if native else []
        self._running: dict[int, tuple[str, Path, subprocess.Popen[bytes]]] = {}
        self._perf: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def attach(self, processes: Mapping[int, str]) -> None:
        """Start py-spy for the processes (name by process id) that are not recorded yet."""
        program = beside_python("py-spy")
        for pid, name in processes.items():
            if program is None or pid in self._running:
                continue
            path = self._directory / f"{self._label}-{name}-{pid}.folded"
            command = [program, "record", "--pid", str(pid), "--format", "raw", "--output", str(path)]
            command += ["--rate", str(_RATE), "--duration", "3600", "--threads", *self._native]
            self._running[pid] = (name, path, _logged(command, path.with_suffix(".log")))

    def attach_perf(self, processes: Iterable[int]) -> None:
        """Start perf for the processes and those that they start."""
        if shutil.which("perf") is None:
            return
        command = ["perf", "record", "--freq", "199", "--output", str(self._data), "--pid"]
        self._perf = _logged([*command, ",".join(map(str, processes))], self._data.with_suffix(".log"))

    def finish(self, groups: Mapping[str, Iterable[int]]) -> str:
        """Stop recording; return the hottest frames as text. ``groups``: process ids by group, for perf's reports."""
        for _, _, process in self._running.values():
            process.send_signal(signal.SIGINT)
        if self._perf is not None:
            self._perf.send_signal(signal.SIGINT)
        stacks: defaultdict[str, list[str]] = defaultdict(list)
        for name, path, process in self._running.values():
            _wait(process)
            if path.exists():
                stacks[name] += path.read_text(encoding="utf-8", errors="replace").splitlines()
        lines = [f"py-spy, {name}: {hottest(found)}" for name, found in stacks.items()]
        if self._perf is not None:
            _wait(self._perf)
            lines += [self._report(group, pids) for group, pids in groups.items()]
        return "\n".join(lines)

    @property
    def _data(self) -> Path:
        return self._directory / f"{self._label}.perf"

    def _report(self, group: str, pids: Iterable[int]) -> str:
        wanted = ",".join(map(str, pids))
        command = ["perf", "report", "--input", str(self._data), "--pid", wanted, "--stdio"]
        command += ["--sort", "dso,symbol", "--percentage", "relative"]
        ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        path = self._directory / f"{self._label}-perf-{group.partition(' ')[0]}.txt"
        path.write_text(ended.stdout + ended.stderr, encoding="utf-8")
        found = [line.rstrip() for line in ended.stdout.splitlines() if line.strip() and not line.startswith("#")]
        return "\n".join([f"perf, {group} (all in {path}):", *(f"  {line[:110]}" for line in found[: 2 * _MOST])])


def _logged(command: list[str], path: Path) -> subprocess.Popen[bytes]:
    with path.open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
