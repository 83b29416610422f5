"""The prompt's history: one file of the user's own, without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from proto.durable import private_descriptor, private_folder
from proto.state_home import state_folder

_SECRET = re.compile(r"\bencrypt\b|identified\s+(by|with|as)|password", re.IGNORECASE)


def place(environment: Mapping[str, str], home: Path) -> Path:
    """Where it is kept (XDG Base Directory Specification: state that is not worth a backup). Pure."""
    return state_folder(environment, home) / "dmctl_history"


def is_secret(line: str) -> bool:
    """Whether a line may hold a secret: what `encrypt` is given, or SQL that sets a password. Pure."""
    return _SECRET.search(line) is not None


class _Private(FileHistory):
    """Nobody else may read it; a line with a secret is forgotten at once."""

    def append_string(self, string: str) -> None:
        if not is_secret(string):
            super().append_string(string)


def opened(path: Path) -> History:
    """The history at ``path``; one that ends with the prompt where no file can be kept."""
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
