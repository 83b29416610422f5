"""Variables of the environment that a file may name as ``${NAME}``: only those with an allowed prefix.

A caller that may send a file also chooses the server that receives the value, so that not every variable is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from shardmerge.proto.config import defaults

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class _Process:
    prefixes: tuple[str, ...] = defaults.ENV_PREFIXES


def use(prefixes: Sequence[str]) -> None:
    """Let files that this process reads name only variables that begin with one of ``prefixes``; none: no variable.

    The setting is global to the process, like its environment.
    """
    _Process.prefixes = tuple(prefixes)


def prefixes() -> tuple[str, ...]:
    """The prefixes set by :func:`use`."""
    return _Process.prefixes


def variable_name(text: str) -> str | None:
    """The variable that a value names; None for a value that does not have the form ``${NAME}``."""
    reference = _REFERENCE.fullmatch(text)
    return reference.group(1) if reference else None


def is_allowed(name: str) -> bool:
    """Whether files may name this variable."""
    return name.startswith(_Process.prefixes)


def resolve(text: str, environ: Mapping[str, str]) -> str:
    """The value of the variable that ``text`` names; ``text`` itself if it names none, or one that is not allowed or
    not set."""
    name = variable_name(text)
    return environ.get(name, text) if name is not None and is_allowed(name) else text
