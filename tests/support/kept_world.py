"""Keeps started servers and a cluster for tests: ``python -m tests.support.kept_world keep|wait|status|stop|clear``.

`bash tests/run.sh world` starts the keeper, which runs until `bash tests/run.sh world stop`. It keeps :data:`_PARTS`. A
run of the suite has a keeper of its own, `keep <processes>`, with that number of worlds: there a part is started when
the first test needs it, and a cluster that no test needs for a while is ended.
A test process connects to the keeper's Unix socket, requests one part of a kind, and has it until the connection ends
(tests/support/loan.py). Then the keeper resets the part (tests/support/kept_parts.py). It replaces the part when a
reset is impossible, or when one of its processes has ended or was disturbed.

Requests and answers are one JSON object per line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socketserver
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from shardmerge.proto.files.durable_file import private_text
from tests.support.kept_parts import CLUSTER, SPARK_CLUSTER, ClusterPart, Part, ServerPart, source_stamp
from tests.support.loan import STATE, Json, Loan, connect

_PARTS = {"mariadb": 3, "mysql": 2, CLUSTER: 1}
"""Number of parts of each kind. A world of the end-to-end tests has two sources, a target and a cluster; a pair is a
source and a target."""

_PARTS_OF_RUN = {SPARK_CLUSTER: 1}
"""Further parts of each world of a run, which are started when a test needs them."""
_CLUSTERS = frozenset({CLUSTER, SPARK_CLUSTER})

_WAIT_SECONDS = 400.0
"""How long a test waits for a part that is almost ready."""
_IDLE_SECONDS = 60.0
"""A cluster of a run's own keeper is ended when no test has borrowed it for so long: it uses gigabytes of memory."""

_LOOK_SECONDS = 0.5
_QUIET_SECONDS = 3.0
"""A cluster that runs old sources is restarted when they have not changed for so long, or when a test requests it."""

_RETRY_SECONDS = 60.0
_STOP_SECONDS = 90.0


class Stage(StrEnum):
    EMPTY = "not started"
    WANTED = "wanted"
    STARTING = "starting"
    READY = "ready"
    LENT = "lent"
    RETURNED = "returned"
    CLEANING = "being emptied"
    REMOVING = "being removed"
    FAILED = "failed"


_SOON_READY = frozenset({Stage.WANTED, Stage.STARTING, Stage.RETURNED, Stage.CLEANING, Stage.REMOVING})


class Slot(threading.Thread):
    """Place of one part: there it is started, lent, reset and replaced."""

    def __init__(self, keeper: Keeper, kind: str, number: int) -> None:
        super().__init__(name=f"{kind}-{number}")
        self.kind = kind
        self.stage = Stage.STARTING
        self.since = time.monotonic()
        self.part: Part | None = None
        self.borrower = 0
        self.taken = False
        self._keeper = keeper
        self._runs = 0

    def set(self, stage: Stage) -> None:
        with self._keeper.changed:
            self.stage, self.since = stage, time.monotonic()
            self._keeper.changed.notify_all()

    def run(self) -> None:
        while not self._keeper.stops:
            if self._keeper.is_lazy:
                self.set(Stage.EMPTY)
                while self.stage == Stage.EMPTY and not self._keeper.stops:
                    self._keeper.wait(_LOOK_SECONDS)
                if self._keeper.stops:
                    return
            self.set(Stage.STARTING)
            self.taken = False
            part = self._make()
            try:
                part.start()
                self.part = part
                self.set(Stage.READY)
                reason = self._serve(part)
                print(f"{self.name} is replaced: {reason}", flush=True)
            except Exception:  # noqa: BLE001 - after any error the part is replaced
                traceback.print_exc()
                if self.part is None:
                    self.set(Stage.FAILED)
            if self.stage != Stage.FAILED:
                self.set(Stage.REMOVING)
            self.part = None
            part.remove()
            if self.stage == Stage.FAILED:
                self._wait_for_change()

    def _make(self) -> Part:
        # Each part has a new folder: files that the previous one has left cannot disturb it.
        self._runs += 1
        folder = self._keeper.folder / f"{self.name}.{self._runs}"
        if self.kind in _CLUSTERS:
            return ClusterPart(self.kind, folder)
        return ServerPart(self.kind, folder)

    def _serve(self, part: Part) -> str:
        """Serve until the part must be replaced; return the reason."""
        quiet = Quiet()
        while not self._keeper.stops:
            self._keeper.wait(_LOOK_SECONDS)
            match self.stage:
                case Stage.READY:
                    if not part.lives():
                        return "a process has ended"
                    if self._is_idle():
                        return "no test wants it"
                    if not self._keeper.is_lazy and part.is_outdated and quiet():
                        return "the sources have changed"
                case Stage.RETURNED:
                    if self.taken or not part.lives():
                        return "a test has disturbed it"
                    # Tasks of an ending cluster write to the server until they have ended.
                    if self.kind in _CLUSTERS or not self._keeper.uses_servers(self.borrower):
                        self.set(Stage.CLEANING)
                        left = part.make_as_new()
                        if left:
                            return left
                        self.set(Stage.READY)
                case Stage.LENT:
                    pass
                case _:
                    return "a test wants one of the present sources"
        return "the world ends"

    def _is_idle(self) -> bool:
        lasts = time.monotonic() - self.since
        return self._keeper.is_lazy and self.kind in _CLUSTERS and lasts > _IDLE_SECONDS

    def _wait_for_change(self) -> None:
        stamp, deadline = source_stamp(), time.monotonic() + _RETRY_SECONDS
        while not self._keeper.stops and source_stamp() == stamp and time.monotonic() < deadline:
            self._keeper.wait(_LOOK_SECONDS)


class Quiet:
    """Detects that the sources have not changed for a while."""

    def __init__(self) -> None:
        self._stamp = 0
        self._since = 0.0

    def __call__(self) -> bool:
        stamp = source_stamp()
        if stamp != self._stamp:
            self._stamp, self._since = stamp, time.monotonic()
        return time.monotonic() - self._since > _QUIET_SECONDS


class Keeper:
    """Owns all parts. ``processes``: the number of processes of the run of the suite that it serves; 0: it serves no
    run."""

    def __init__(self, folder: Path, processes: int) -> None:
        self.folder = folder
        self.is_lazy = processes > 0
        self.changed = threading.Condition()
        self.stops = False
        self.slots = [
            Slot(self, kind, number)
            for kind, count in (_PARTS | _PARTS_OF_RUN if self.is_lazy else _PARTS).items()
            for number in range(1, count * max(processes, 1) + 1)
        ]

    def wait(self, seconds: float) -> None:
        with self.changed:
            self.changed.wait(seconds)

    def uses_servers(self, borrower: int) -> bool:
        """Return whether a cluster may still write to the servers that ``borrower`` has returned."""
        busy = (Stage.RETURNED, Stage.CLEANING, Stage.REMOVING)
        return self._has_cluster(borrower) or any(slot.stage in busy for slot in self.slots if slot.kind in _CLUSTERS)

    def _has_cluster(self, borrower: int) -> bool:
        return any(
            slot.stage == Stage.LENT and slot.borrower == borrower for slot in self.slots if slot.kind in _CLUSTERS
        )

    def _is_soon_ready(self, slot: Slot) -> bool:
        # A server waits for its borrower's cluster, which that process may have for many more tests.
        waits = slot.stage == Stage.RETURNED and slot.kind not in _CLUSTERS and self._has_cluster(slot.borrower)
        return slot.stage in _SOON_READY and not waits

    def lend(self, kind: str, wishes: Json) -> Slot | None:
        """Return a ready part, and wait for it when one will soon be ready; None when all are lent."""
        deadline = time.monotonic() + _WAIT_SECONDS
        borrower, wanted = int(wishes["pid"]), False
        with self.changed:
            while not self.stops and time.monotonic() < deadline:
                slots = [slot for slot in self.slots if slot.kind == kind]
                for slot in slots:
                    if slot.stage == Stage.READY and slot.part is not None:
                        if not slot.part.fits(wishes):
                            return None
                        if slot.part.is_outdated or not slot.part.lives():
                            slot.set(Stage.REMOVING)
                            continue
                        slot.set(Stage.LENT)
                        slot.borrower = borrower
                        return slot
                soon = [slot.stage for slot in slots if self._is_soon_ready(slot)]
                # Parts that are starting may be meant for other requests.
                mine = wanted or Stage.RETURNED in soon or Stage.CLEANING in soon
                empty = next((slot for slot in slots if slot.stage == Stage.EMPTY), None)
                if empty is not None and not (soon and mine):
                    empty.set(Stage.WANTED)
                    wanted = True
                elif not soon:
                    return None
                self.changed.wait(1)
        return None

    def status(self) -> Json:
        now = time.monotonic()
        return {
            "parts": [
                {
                    "name": slot.name,
                    "stage": slot.stage.value,
                    "seconds": round(now - slot.since, 1),
                    "processes": [process.pid for process in slot.part.processes()] if slot.part else [],
                    "directory": str(slot.part.facts["directory"]) if slot.part else "",
                    "borrower": slot.borrower if slot.stage == Stage.LENT else 0,
                }
                for slot in self.slots
            ]
        }

    def end(self) -> None:
        with self.changed:
            self.stops = True
            self.changed.notify_all()


class Conversation(socketserver.StreamRequestHandler):
    """The conversation with one test process about one part."""

    def handle(self) -> None:
        assert isinstance(self.server, Doors)
        keeper = self.server.keeper
        slot: Slot | None = None
        try:
            for line in self.rfile:
                request: Json = json.loads(line)
                answer: Json = {}
                if "want" in request:
                    slot = _lend(keeper, request)
                    answer = slot.part.facts if slot is not None and slot.part is not None else {}
                elif "status" in request:
                    answer = keeper.status()
                elif slot is not None and slot.part is not None:
                    answer = _on_part(slot, slot.part, request)
                self.wfile.write((json.dumps(answer) + "\n").encode())
        except OSError:
            pass  # the test process was killed
        finally:
            if slot is not None:
                slot.set(Stage.RETURNED)


def _lend(keeper: Keeper, request: Json) -> Slot | None:
    slot = keeper.lend(str(request["want"]), request)
    if slot is None or slot.part is None:
        return None
    try:
        slot.part.prepare(request)
    except Exception:  # noqa: BLE001 - after any error the test starts a part of its own
        traceback.print_exc()
        slot.taken = True
        slot.set(Stage.RETURNED)
        return None
    return slot


def _on_part(slot: Slot, part: Part, request: Json) -> Json:
    if "take" in request:
        slot.taken = True
    elif "signal" in request:
        part.signal(int(request["process"]), int(request["signal"]))
    elif "poll" in request:
        return {"code": part.exit_code(int(request["poll"]))}
    return {}


class Doors(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    keeper: Keeper


def keep() -> int:
    """Run until SIGTERM. An argument: the number of processes of the run that this keeper serves."""
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    folder = Path(tempfile.mkdtemp(prefix="shardmerge-world-"))
    # What a part creates for itself is removed with the folder.
    tempfile.tempdir = str(folder)
    keeper = Keeper(folder, processes)
    path = folder / "keeper.sock"
    server = Doors(str(path), Conversation)
    server.keeper = keeper

    def end(_number: int, _frame: object) -> None:
        keeper.end()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with private_text(STATE) as file:
        json.dump({"pid": os.getpid(), "folder": str(folder), "socket": str(path)}, file)
    for slot in keeper.slots:
        slot.start()
    # Not an endless join: a signal that another thread receives is handled only when this thread runs again.
    while any(slot.is_alive() for slot in keeper.slots):
        time.sleep(_LOOK_SECONDS)
    server.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
    STATE.unlink(missing_ok=True)
    return 0


def _ask_status() -> list[Json] | None:
    """Return the state of all parts; None when no keeper runs."""
    connection = connect()
    if connection is None:
        return None
    with connection:
        return Loan(connection).ask({"status": True}).get("parts")


def status() -> int:
    parts = _ask_status()
    if parts is None:
        print("world: not running")
        return 1
    for part in parts:
        lent = f" to process {part['borrower']}" if part["borrower"] else ""
        pids = " ".join(str(pid) for pid in part["processes"])
        print(f"{part['name']:12} {part['stage'] + lent:24} {part['seconds']:7.1f} s  {pids:32} {part['directory']}")
    return 0


def wait() -> int:
    """Print each part when it is ready."""
    began, printed = time.monotonic(), set[str]()
    while True:
        parts = _ask_status()
        if parts is None:
            if time.monotonic() - began > _STOP_SECONDS:
                print("world: the keeper does not start", file=sys.stderr)
                return 1
        else:
            for part in parts:
                if part["stage"] not in (Stage.STARTING, Stage.REMOVING) and part["name"] not in printed:
                    printed.add(part["name"])
                    print(f"world: {part['name']} {part['stage']} after {time.monotonic() - began:.1f} s", flush=True)
            if len(printed) == len(parts):
                return int(any(part["stage"] == Stage.FAILED for part in parts))
        time.sleep(0.2)


def _state() -> dict[str, Any]:
    """Return the stored state of the keeper; {} when there is none."""
    try:
        return json.loads(STATE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def stop() -> int:
    """End the keeper and all parts that it keeps."""
    state = _state()
    connection = connect()
    if connection is None:
        return 0
    with connection:
        os.kill(int(state["pid"]), signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while STATE.exists():
            if time.monotonic() > deadline:
                print(f"world: the keeper, process {state['pid']}, does not end", file=sys.stderr)
                return 1
            time.sleep(0.1)
    return 0


def clear() -> int:
    """Remove the files of a keeper that was killed, once its processes have ended."""
    state = _state()
    if state:
        shutil.rmtree(str(state["folder"]), ignore_errors=True)
    STATE.unlink(missing_ok=True)
    return 0


_COMMANDS: dict[str, Callable[[], int]] = {"keep": keep, "wait": wait, "status": status, "stop": stop, "clear": clear}

if __name__ == "__main__":
    sys.exit(_COMMANDS[sys.argv[1]]())
