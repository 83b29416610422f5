"""Finds the processes of this machine, by the sessions to which they belong."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

import psutil


def processes() -> Iterator[psutil.Process]:
    """Yield all processes. ``psutil.process_iter`` would yield objects that it made for former processes, whose numbers
    others have now: they refuse to be killed."""
    for pid in psutil.pids():
        try:
            found = psutil.Process(pid)
        except psutil.Error:
            continue
        yield found


def of_sessions(leaders: Collection[int]) -> list[psutil.Process]:
    """Return the living processes of the sessions of these leaders, which may have ended."""
    found: list[psutil.Process] = []
    for process in processes():
        try:
            if os.getsid(process.pid) in leaders and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return found
