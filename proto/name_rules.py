"""Rules for names of tasks, sources and daemons: they become part of etcd keys, directories and messages."""

from __future__ import annotations

NAME_RULE = "must not hold /, control characters or outer blanks, nor be . or .."
FILE_RULE = "must be the name of a file, without / and control characters, and not . or .."


def is_name(text: str) -> bool:
    """Whether ``text`` keeps :data:`NAME_RULE`."""
    return "/" not in text and text not in {".", ".."} and text.isprintable() and text == text.strip()


def is_file_name(text: str) -> bool:
    """Whether ``text`` keeps :data:`FILE_RULE`: joined to a directory it is a file within it."""
    return bool(text) and "\\" not in text and "/" not in text and text not in {".", ".."} and text.isprintable()
