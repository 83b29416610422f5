"""Named moments at which a test may hold the program.

Off unless ``SHARDMERGE_HOOKS`` names a directory. A test creates ``<dir>/<moment>.hold``; the
program that reaches the moment writes ``<dir>/<moment>.reached.<pid>`` and waits until the hold file
is gone. Works across processes: Spark's Python workers inherit the environment.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_POLL_SECONDS = 0.01


def reach(moment: str) -> None:
    """Say that ``moment`` was reached and wait while a test holds it; free when hooks are off."""
    directory = os.environ.get("SHARDMERGE_HOOKS")
    if directory is None:
        return
    hold = Path(directory) / f"{moment}.hold"
    if not hold.exists():
        return
    reached = Path(directory) / f"{moment}.reached.{os.getpid()}"
    reached.touch()
    while hold.exists():
        time.sleep(_POLL_SECONDS)
