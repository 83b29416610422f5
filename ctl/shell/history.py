"""The prompt's history: a private file of the user, without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from shardmerge.proto.files.durable_file import private_descriptor, private_folder
from shardmerge.proto.files.state_home import state_folder

_SECRET = re.compile(r"\bencrypt\b|identified\s+(by|with|as)|password", re.IGNORECASE)


def history_path(environment: Mapping[str, str], home: Path) -> Path:
    """The path of the history file (XDG Base Directory Specification: state that needs no backup). Pure."""
    return state_folder(environment, home) / "dmctl_history"


def is_secret(line: str) -> bool:
    """Whether a line may hold a secret: an argument of `encrypt`, or SQL that sets a password. Pure."""
    return _SECRET.search(line) is not None


class _Private(FileHistory):
    """A history file that only its user may read; a line with a secret is not stored."""

    def append_string(self, string: str) -> None:
        if not is_secret(string):
            super().append_string(string)


def open_history(path: Path) -> History:
    """The history at ``path``; if the file cannot be written, one that ends with the prompt."""
    try:
        private_folder(path.parent)
        descriptor = private_descriptor(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError:
        return InMemoryHistory()
    return _Private(str(path))
