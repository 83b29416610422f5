"""Watches the task during a soak: its status, its memory, and whether it needs an operator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil
import pymysql

from shardmerge.proto.errors import CATALOGUE
from tests.soak.arena import Arena
from tests.soak.merge import TASK
from tests.support.cluster import SubTask
from tests.support.database import Database
from tests.support.wait import until

_LOOK_SECONDS = 10.0
_SETTLE_LOOK_SECONDS = 2.0


class GaveUp(Exception):
    """A subtask is paused by an error that does not clear by itself: an operator would be needed."""


@dataclass(slots=True)
class Memory:
    """The highest resident memory seen, in MiB."""

    lane: int = 0
    jvm: int = 0


class Watch:
    """Writes a line per subtask to ``log`` every few seconds; :attr:`gave_up` asks the soak to end."""

    def __init__(self, arena: Arena, log: Callable[[str], None]) -> None:
        self._arena = arena
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.memory = Memory()
        self.gave_up = threading.Event()
        self.errors: tuple[str, ...] = ()
        self._seen: Mapping[str, SubTask] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def snapshot_goes_on(self) -> bool:
        """Return whether, at the last poll, a subtask had not finished its snapshot."""
        return len(self._seen) < len(self._arena.sources) or any(sub.unit != "Sync" for sub in self._seen.values())

    def settle(self, seconds: float) -> None:
        """Wait until every source's binlog is applied to its end; writers and faults must have ended.

        Raises GaveUp, or AssertionError at the deadline with the subtasks' status.
        """
        ends: dict[str, tuple[int, int]] = {}

        def applied() -> bool:
            if not self._arena.supervisor.all_alive:
                return False
            try:
                ends.update({source.name: _end(source.server) for source in self._arena.sources})
            except pymysql.err.OperationalError:  # it runs but does not answer yet
                return False
            found = self._look()
            self._judge(found)
            return len(found) == len(ends) and all(
                sub.unit == "Sync" and sub.synced and sub.position >= ends[sub.source] for sub in found.values()
            )

        try:
            until(applied, f"the task has applied everything up to {ends}", seconds, every=_SETTLE_LOOK_SECONDS)
        except AssertionError as error:
            raise AssertionError("\n".join((str(error), *self.describe()))) from None

    def describe(self) -> list[str]:
        """Return the subtasks' state at the last poll."""
        return [_line(sub) for sub in self._seen.values()]

    # -- the polling thread

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                self._judge(self._look())
            except GaveUp as error:
                self.errors = (str(error),)
                self.gave_up.set()
                return

    def _look(self) -> Mapping[str, SubTask]:
        found = self._arena.cluster.subtasks(TASK)
        if found:
            self._seen = found
        for sub in found.values():
            self._log(_line(sub))
        self._measure()
        return found

    def _judge(self, found: Mapping[str, SubTask]) -> None:
        for sub in found.values():
            final = [f"[{code}] {message}" for code, message in sub.errors if not _passes(code)]
            if sub.stage == "Paused" and final:
                raise GaveUp(f"{sub.source} at {sub.worker} is paused: {'; '.join(final)}")

    def _measure(self) -> None:
        for worker in self._arena.cluster.workers:
            if worker.alive:
                for pid in worker.spark_task_pids():
                    self.memory.lane = max(self.memory.lane, _resident(pid))
                with suppress(AssertionError):
                    self.memory.jvm = max(self.memory.jvm, _resident(worker.jvm_pid()))


def _passes(code: int) -> bool:
    spec = CATALOGUE.get(code)
    return spec is not None and spec.retryable


def _end(server: Database) -> tuple[int, int]:
    file, position = server.binlog_end()
    return int(file.rpartition(".")[2]), position


def _line(sub: SubTask) -> str:
    said = " ".join(f"[{code}] {message}" for code, message in sub.errors)
    sync = sub.raw.get("sync", {})
    load = sub.raw.get("load", {})
    how = f"behind={sync.get('bytesBehind', '?')}" if sub.unit == "Sync" else f"progress={load.get('progress', '?')}"
    return f"{sub.source} {sub.worker} {sub.stage} {sub.unit} {sub.position} synced={sub.synced} {how} {said}".rstrip()


def _resident(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss >> 20
    except psutil.Error:
        return 0
