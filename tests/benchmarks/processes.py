"""Measures processor time and memory of groups of processes, from /proc (proc(5))."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_EVERY_SECONDS = 0.5

LANE, JVM, WORKER, MASTER = "lanes", "JVMs", "workers (feeder, relay, driver)", "master"
SOURCE, TARGET, FORKER = "sources", "target", "parents of lanes"


@dataclass(frozen=True, slots=True)
class Roots:
    """Assigns processes to groups. ``servers``: name of the group by process id. ``sessions``: the same, by the id of a
    session whose processes are distinguished by their program: the JVM, Spark's Python processes, the daemon itself."""

    servers: Mapping[int, str]
    sessions: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one group of processes. ``cpu_seconds``: since the watch began. ``largest_mib``: highest resident set
    that any of its processes has ever had."""

    cpu_seconds: float
    largest_mib: float


@dataclass(slots=True)
class _Seen:
    group: str
    begun_at: float  # its CPU seconds when the watch began, 0 for a process that started later
    cpu_seconds: float
    largest_mib: float


class Watch:
    """Polls twice a second until closed; the usage of a process that ends is counted up to the last poll."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._first = True
        self._ended = threading.Event()
        self._machine = machine_seconds()
        self._look()
        self._first = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._look()
            self.busy_seconds = machine_seconds() - self._machine

    def usage(self) -> dict[str, Usage]:
        """Return the usage by group; complete after :meth:`close`."""
        found: dict[str, Usage] = {}
        for seen in self._seen.values():
            before = found.get(seen.group, Usage(0.0, 0.0))
            found[seen.group] = Usage(
                before.cpu_seconds + seen.cpu_seconds - seen.begun_at, max(before.largest_mib, seen.largest_mib)
            )
        return found

    def processes(self, groups: Iterable[str]) -> dict[str, list[int]]:
        """Return the process ids of these groups seen so far."""
        seen = list(self._seen.items())
        return {group: [pid for (pid, _), one in seen if one.group == group] for group in groups}

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        for pid in _processes():
            try:
                self._look_at(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process has ended

    def _look_at(self, pid: int) -> None:
        parent, ticks, started = _stat(pid)
        seen = self._seen.get((pid, started))
        cpu = ticks / _TICKS
        if seen is None:
            group = self._group(pid, parent)
            if not group:
                return
            seen = self._seen[pid, started] = _Seen(group, cpu if self._first else 0.0, cpu, 0.0)
        seen.cpu_seconds = cpu
        seen.largest_mib = max(seen.largest_mib, largest_mib(pid))

    def _group(self, pid: int, parent: int) -> str:
        """Return the group of a process; "" for a process that is not the benchmark's."""
        server = self._roots.servers.get(pid)
        if server is not None:
            return server
        session = os.getsid(pid)
        group = self._roots.sessions.get(session, "")
        if not group or pid == session:
            return group
        if _is_java(pid):
            return JVM
        # Spark's Python processes: the JVM starts one that forks, and it forks one per task.
        if _is_java(parent):
            return FORKER
        return LANE if _is_java(_stat(parent)[0]) else group


def forget_largest(roots: Roots) -> None:
    """Count the largest resident sets from now on (proc(5), clear_refs)."""
    for pid in _processes():
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if pid in roots.servers or os.getsid(pid) in roots.sessions:
                Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")


def largest_mib(pid: int) -> float:
    """Return the highest resident set a process has ever had (VmHWM), including shared pages; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0  # a zombie has no memory


def machine_seconds() -> float:
    """Return the busy seconds of all processors together, for any process (user to steal, without idle, iowait)."""
    first = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, first[1:])
    return (user + nice + system + irq + softirq) / _TICKS


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> tuple[int, int, int]:
    """Return parent, CPU ticks (user and system), start time."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19])


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip() == "java"
    except (FileNotFoundError, ProcessLookupError):
        return False
