"""Escapes text from outside for messages and log lines: the only place that does."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    # Controls of C0 and C1, other line ends, marks that change the writing direction, unpaired surrogates.
)


def has_controls(text: str) -> bool:
    """Whether ``text`` holds a character that :func:`escaped` would not show as it is."""
    return _UNSAFE.search(text) is not None


def escaped(text: str, most: int = 0) -> str:
    """``text`` with every control character as ``\\xhh`` or ``\\uhhhh``, on one line.

    ``most``: the most characters to keep, the rest becomes "…"; 0: all of them.
    """
    cut = text[:most] + "…" if 0 < most < len(text) else text
    return _UNSAFE.sub(_escape, cut)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
