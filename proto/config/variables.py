"""Variables of the environment that a file may name as ``${NAME}``: those alone whose names begin as is allowed.

Whoever may send a file has the value sent to a server that the file names, so that not every variable may be named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from proto.config import defaults

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class _Process:
    prefixes: tuple[str, ...] = defaults.ENV_PREFIXES


def use(prefixes: Sequence[str]) -> None:
    """Let files that this process reads name variables that begin with one of ``prefixes`` alone; none: no variable.

    Of the whole process, like its environment.
    """
    _Process.prefixes = tuple(prefixes)


def prefixes() -> tuple[str, ...]:
    """The prefixes given to :func:`use`."""
    return _Process.prefixes


def named(text: str) -> str | None:
    """The variable that a value names; None for a value that is none of the form ``${NAME}``."""
    reference = _REFERENCE.fullmatch(text)
    return reference.group(1) if reference else None


def is_allowed(name: str) -> bool:
    """Whether files may name this variable."""
    return name.startswith(_Process.prefixes)


def resolved(text: str, environ: Mapping[str, str]) -> str:
    """The value of the variable that ``text`` names; ``text`` itself if it names none, or one that is not allowed or
    not set."""
    name = named(text)
    return environ.get(name, text) if name is not None and is_allowed(name) else text
