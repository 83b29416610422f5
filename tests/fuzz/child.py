"""The fuzz in a process of its own, which may not take more memory than a lane has: a crash or a hang is seen."""

from __future__ import annotations

import json
import mmap
import os
import resource
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_MEMORY = 1 << 30
STALL_SECONDS = 120.0
"""One event takes less than a millisecond; the machine may be busy with other things."""

_NUMBER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Report:
    """``outcomes``: how many events ended how. ``fault``: what went wrong, "" for nothing."""

    outcomes: Counter[str]
    seconds: float
    peak_mebibytes: int
    fault: str = ""


def run_in_child(seed: int, first: int, count: int) -> Report:
    """Try the events in a child. A fault names the event, for ``python -m tests.fuzz --first … --events 1``."""
    begun = time.monotonic()
    with tempfile.NamedTemporaryFile() as progress:
        progress.write(_NUMBER.pack(-1))
        progress.flush()
        command = [sys.executable, "-m", "tests.fuzz.child", str(seed), str(first), str(count), progress.name]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout is not None and child.stderr is not None
        last, since = -2, time.monotonic()
        fault = ""
        while not fault and not select.select([child.stdout], [], [], 1.0)[0]:
            (number,) = _NUMBER.unpack(Path(progress.name).read_bytes())
            if number != last:
                last, since = number, time.monotonic()
            elif time.monotonic() - since > STALL_SECONDS:
                fault = f"event {number} of seed {seed} hangs"
                child.kill()
        out, err = child.communicate()
        (number,) = _NUMBER.unpack(Path(progress.name).read_bytes())
    seconds = time.monotonic() - begun
    if fault or child.returncode != 0 or not out:
        said = err.decode("utf-8", "replace")[-4000:]
        fault = fault or f"the child ended with {child.returncode} at event {number} of seed {seed}\n{said}"
        return Report(Counter(), seconds, 0, fault)
    answer = json.loads(out)
    return Report(Counter(answer["outcomes"]), seconds, answer["peak_mebibytes"])


def _child(seed: int, first: int, count: int, progress: Path) -> None:
    from shardmerge.worker.binlog import is_compiled
    from tests.fuzz.run import run

    assert is_compiled(), "the decoder is not compiled: pip install -e ."
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with progress.open("r+b") as file, mmap.mmap(file.fileno(), _NUMBER.size) as shared:
        outcomes = run(seed, first, count, lambda number: _NUMBER.pack_into(shared, 0, number))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    os.write(1, json.dumps({"outcomes": outcomes, "peak_mebibytes": peak}).encode())


if __name__ == "__main__":
    _child(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
