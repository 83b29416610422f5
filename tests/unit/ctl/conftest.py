"""Replaces what dmctl's commands do, so that tests can check whether it understands a command line."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from shardmerge.ctl.main import dmctl
from shardmerge.ctl.shell.name_or_command import NameOrCommand


@pytest.fixture
def understood(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the commands that were called; they do nothing."""
    called: list[str] = []

    def replace(command: click.Command) -> None:
        if isinstance(command, NameOrCommand):
            replace(command.named)
        if isinstance(command, click.Group):
            for one in command.commands.values():
                replace(one)
            if not command.invoke_without_command:
                return
        monkeypatch.setattr(command, "callback", recorder(command.name or ""))

    def recorder(name: str) -> Callable[..., int]:
        def record(**_: object) -> int:
            called.append(name)
            return 0

        return record

    for command in dmctl.commands.values():
        replace(command)
    return called
