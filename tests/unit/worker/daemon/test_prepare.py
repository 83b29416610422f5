"""Tests that the process that makes the archive of Spark's classes leaves the processors to others."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import os
from pathlib import Path
from shardmerge.worker.daemon.prepare import _give_way

_give_way()
group = Path("/proc/self/autogroup")
print(os.nice(0), os.getsid(0) == os.getpid(), group.read_text().split()[-1] if group.exists() else 19)
"""


def test_it_has_the_lowest_weight_also_beside_other_sessions() -> None:
    found = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["19", "True", "19"]
