"""The stacks of all threads as text: names and frames, no values."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType

from shardmerge.proto.diagnostics.log_event import shown_frame
from shardmerge.proto.escaped_text import escaped

_MOST_THREADS = 1000
_MOST_FRAMES = 60
_MOST_NAMES = 20
_MOST_CHARS = 512 << 10


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """``frames``: the innermost first."""

    name: str
    frames: tuple[str, ...]


def thread_stacks() -> list[ThreadStack]:
    """The stacks of the threads of this process that run Python, by name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        ThreadStack(escaped(names.get(ident, f"thread {ident}"), 100), _frames(frame))
        for ident, frame in list(sys._current_frames().items())[:_MOST_THREADS]  # pyright: ignore[reportPrivateUsage]
    ]
    return sorted(found, key=lambda stack: stack.name)


def text_of(stacks: Iterable[ThreadStack]) -> str:
    """Equal stacks once, with the names of their threads. Pure."""
    names: dict[tuple[str, ...], list[str]] = {}
    for stack in stacks:
        names.setdefault(stack.frames, []).append(stack.name)
    parts: list[str] = []
    for frames, threads in names.items():
        more = len(threads) - _MOST_NAMES
        head = ", ".join(threads[:_MOST_NAMES]) + (f", and {more} more" if more > 0 else "")
        parts.append("\n".join([f"{head}:", *(f"  {frame}" for frame in frames)]))
    text = "\n\n".join(parts) + "\n"
    return text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + "\n(cut)\n"


def _frames(frame: FrameType | None) -> tuple[str, ...]:
    found: list[str] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        found.append(shown_frame(frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)
