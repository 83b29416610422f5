"""The Python modules whose functions a task file may name: a task file arrives over the network, so that it must not be
able to run whatever is installed. The key `transform-modules` of the worker's file names them."""

from __future__ import annotations

from collections.abc import Iterable

_allowed: set[str] = set()


def use(modules: Iterable[str]) -> None:
    """Allow exactly these modules in this process."""
    _allowed.clear()
    _allowed.update(modules)


def is_allowed(module: str) -> bool:
    return module in _allowed
