"""Shows a statement of another session without its values: they may be passwords or personal data. Pure."""

from __future__ import annotations

import re

_PART = re.compile(
    r"(?P<name>`(?:[^`]|``)*(?:`|\Z))"
    r"|(?P<comment>/\*.*?(?:\*/|\Z)|(?:#|--(?=\s|\Z))[^\n]*)"
    r"|(?P<escaped>(?P<quote>['\"])(?:(?!(?P=quote))[^\\]|(?P=quote){2})*\\.*)"
    r"|(?P<string>'(?:[^'\\]|'')*(?:'|\Z)|\"(?:[^\"\\]|\"\")*(?:\"|\Z))"
    r"|(?P<number>\b0[xb][0-9a-f]+\b|\b[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?\b|\.[0-9]+\b)",
    re.DOTALL | re.IGNORECASE,
)

_VALUES = re.compile(r"\?(?:\s*,\s*(?:-|_?[a-z][a-z0-9]*)?\?)+", re.IGNORECASE)
_ROWS = re.compile(r"\(\?, …\)(?:\s*,\s*\(\?, …\))+")


def without_values(statement: str) -> str:
    """``statement``, which may be cut anywhere, on one line, with ``?`` for strings and numbers, without its comments
    and control characters. Of a list of values or rows only the first is shown.

    Whether a backslash escapes a quote depends on the session's sql_mode, which is not known here: nothing after a
    string with one is shown.
    """
    shown = "".join(mark if mark.isprintable() else " " for mark in _PART.sub(_shown, statement))
    text = " ".join(shown.split())
    return _ROWS.sub("(?, …), …", _VALUES.sub("?, …", text))


def _shown(found: re.Match[str]) -> str:
    if found["name"] is not None:
        return found[0]
    if found["comment"] is not None:
        return " "
    return "? …" if found["escaped"] is not None else "?"
