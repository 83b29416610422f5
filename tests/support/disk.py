"""Provides a file system of a few MiB, so that the error "disk full" comes from the kernel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(directory: Path, mebibytes: int) -> Generator[Path]:
    """Mount ``directory`` as a tmpfs of that size, until the end of the block.

    Needs root or sudo without a password; without both the test is skipped.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
    options = f"size={mebibytes}m,mode=0777"
    try:
        subprocess.run(
            [*sudo, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)],
            check=True,
            capture_output=True,
        )
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"cannot mount a tmpfs here: {error}")
    try:
        yield directory
    finally:
        # Lazily: a failed test may have left files open.
        subprocess.run([*sudo, "umount", "-l", str(directory)], check=True)


def fill(directory: Path, leave_bytes: int) -> Path:
    """Write a file that leaves only ``leave_bytes`` free; remove it to have the space back."""
    ballast = directory / "ballast"
    found = os.statvfs(directory)
    with ballast.open("wb") as file:
        left = found.f_bavail * found.f_frsize - leave_bytes
        while left > 0:
            left -= file.write(bytes(min(left, 1 << 20)))
    return ballast
