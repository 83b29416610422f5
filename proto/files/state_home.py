"""The state folder of a user's programs (XDG Base Directory Specification)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def state_folder(environment: Mapping[str, str], home: Path) -> Path:
    """The folder ``shardmerge`` of ``$XDG_STATE_HOME``, or of ``~/.local/state`` if that is no absolute path. Pure."""
    state = Path(environment.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else home / ".local" / "state") / "shardmerge"
