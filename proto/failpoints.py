"""Named moments at which a test may hold the program, or let it fail.

Off unless ``SHARDMERGE_HOOKS`` names a directory. A test creates ``<dir>/<moment>.hold``; the
program that reaches the moment writes ``<dir>/<moment>.reached.<pid>`` and waits until the hold file
is gone. Where ``<dir>/<moment>.fail`` is, it raises MadeToFail. Works across processes: Spark's Python
workers inherit the environment.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_POLL_SECONDS = 0.01


def _forget_earlier_program() -> None:
    """Remove what this process has reported as another program: a worker that restarts in place keeps its id, and
    waits nowhere any more."""
    if directory := os.environ.get("SHARDMERGE_HOOKS"):
        for reached in Path(directory).glob(f"*.reached.{os.getpid()}"):
            reached.unlink(missing_ok=True)


_forget_earlier_program()


class MadeToFail(Exception):
    """Looks like a bug to the program: an exception that no code expects."""


def hit(moment: str) -> None:
    """Report that ``moment`` was reached and wait while a test holds it; costs nothing when hooks are off.

    Raises MadeToFail where a test wants that.
    """
    directory = os.environ.get("SHARDMERGE_HOOKS")
    if directory is None:
        return
    if (Path(directory) / f"{moment}.fail").exists():
        raise MadeToFail(f"at {moment}")
    hold = Path(directory) / f"{moment}.hold"
    if not hold.exists():
        return
    reached = Path(directory) / f"{moment}.reached.{os.getpid()}"
    reached.touch()
    while hold.exists():
        time.sleep(_POLL_SECONDS)
