"""A literal's value as the server sends it to a SELECT: the way back from worker/binlog/values.py."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b"\0" if match[1] == b"0" else match[1]


def text_of_literal(literal: bytes) -> bytes | None:
    """The text of a number, a temporal value, a text in its own charset's bytes or of binary; None for NULL."""
    if literal == b"NULL":
        return None
    if literal.startswith(b"'"):
        inner = literal[1:-1]
        return _ESCAPE.sub(_unescaped, inner) if b"\\" in inner else inner
    if literal.endswith(b"'"):
        return bytes.fromhex(literal[literal.index(b"X'") + 2 : -1].decode("ascii"))
    return literal
