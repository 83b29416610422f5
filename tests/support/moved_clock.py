"""Provides a server with a clock of its own, which a test may move: libfaketime shifts the times that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_LIBRARIES = ("/usr/lib", "/usr/lib64")
_LIBRARY = "faketime/libfaketimeMT.so.1"


class MovedClock:
    """The clock of the processes that are started with :attr:`environment`.

    The times of a process that only go forward (CLOCK_MONOTONIC) are not moved. A Python process cannot use it: its
    time.sleep() fails.
    """

    def __init__(self, file: Path) -> None:
        """``file``: is written here; the processes read the present offset from it."""
        self._file = file
        self.move(0)

    def move(self, seconds: int) -> None:
        """Let the clock be so many seconds ahead of the system's from now on."""
        self._file.write_text(f"{seconds:+d}\n")

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def _library() -> Path:
    """Return the library of the system's package libfaketime, in the folder of the machine's architecture."""
    found = [path for folder in _LIBRARIES for path in Path(folder).glob(f"*/{_LIBRARY}")]
    assert found, "the package libfaketime is missing"
    return found[0]
