"""Measures how much memory processes use."""

from __future__ import annotations

from pathlib import Path

MIB = 1 << 20


def peak_mib(pid: int) -> int:
    """Return the largest resident set that the process ever had, including pages shared with others (proc(5), VmHWM).

    0 for a process that is gone.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")), 0)


def forget_peak(pid: int) -> None:
    """Let :func:`peak_mib` measure from now on (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
