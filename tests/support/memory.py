"""How much memory processes take."""

from __future__ import annotations

from pathlib import Path

MIB = 1 << 20


def peak_mib(pid: int) -> int:
    """The largest resident set that the process ever had, pages shared with others included (proc(5), VmHWM).

    0 for a process that is gone.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")), 0)


def forget_peak(pid: int) -> None:
    """From now on :func:`peak_mib` counts anew (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
