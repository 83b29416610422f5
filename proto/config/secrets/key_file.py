"""The key file of a daemon: the configured one, else one that all daemons of a user on a machine share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shardmerge.proto.errors import config
from shardmerge.proto.files.state_home import state_folder


@dataclass(frozen=True, slots=True)
class KeyFile:
    """``is_default``: the configuration does not name it. A master creates a missing default key file. It never
    creates a named one: a wrong path would then become a new key."""

    path: str
    is_default: bool


def key_file(configured: str, environment: Mapping[str, str]) -> KeyFile:
    """The key file of a process whose `secret-key-path` is ``configured``, "" for none. Raises what
    :func:`default_key_path` raises."""
    if configured:
        return KeyFile(configured, is_default=False)
    return KeyFile(default_key_path(environment), is_default=True)


def default_key_path(environment: Mapping[str, str]) -> str:
    """``$XDG_STATE_HOME/shardmerge/secret.key``, by default ``~/.local/state/shardmerge/secret.key``. Raises
    ``config.SECRET_KEY_UNUSABLE`` for a user without a home folder."""
    try:
        home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    except RuntimeError:
        path = "~/.local/state/shardmerge/secret.key"
        reason = "this user has no home folder; set secret-key-path to a key file, or set XDG_STATE_HOME"
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=reason) from None
    return str(state_folder(environment, home) / "secret.key")
