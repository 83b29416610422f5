"""The table of dmctl's commands is complete, and a command imports only what it needs."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete

from shardmerge.ctl import commands
from shardmerge.ctl.command_table import COMMANDS
from shardmerge.ctl.main import dmctl

_OTHER_NAMES = {"get-task-config": "get-config"}
_IMPORTED_FOR_EVERYTHING = ("pydantic", "ruamel", "structlog", "cryptography", "prompt_toolkit", "rich", "re2")


def test_every_command_is_listed_under_its_name() -> None:
    for name, command in dmctl.commands.items():
        assert command.name == _OTHER_NAMES.get(name, name)
    written = {
        value.name
        for module in pkgutil.walk_packages(commands.__path__, commands.__name__ + ".")
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, click.Command)
    }
    inner = {
        child.name for group in COMMANDS.values() if isinstance(group, click.Group) for child in group.commands.values()
    }
    assert written - inner - set(COMMANDS) == set()


def test_a_listed_line_stays_when_the_command_is_imported() -> None:
    listed = {name: (one.get_short_help_str(), one.hidden) for name, one in COMMANDS.data.items()}
    imported = {name: (one.get_short_help_str(), one.hidden) for name, one in COMMANDS.items()}
    for name, (line, hidden) in listed.items():
        assert imported[name][1] == hidden
        assert hidden or (line and imported[name][0] == line)


def test_completion_of_commands_is_clicks_own() -> None:
    every = {item.value: item.help for item in ShellComplete(dmctl, {}, "dmctl", "").get_completions([], "")}
    of_click = click.Group(commands=dict(dmctl.commands.items()))
    own = click.Group.shell_complete(of_click, click.Context(of_click), "")
    assert every == {item.value: item.help for item in own}
    options = ShellComplete(dmctl, {}, "dmctl", "").get_completions([], "--master")
    assert [item.value for item in options] == ["--master-addr"]


@pytest.mark.parametrize(
    ("words", "also_not"),
    [
        (("--help",), ("grpc", "google.protobuf")),
        (("--version",), ("grpc", "google.protobuf")),
        (("help", "start-task"), ("grpc",)),
        (("--master-addr", "127.0.0.1:1", "--output", "json", "query-status", "merge"), ()),
        (("--master-addr", "127.0.0.1:1", "list-member"), ()),
        (("--master-addr", "127.0.0.1:1", "config", "task", "merge"), ()),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_command_imports_only_what_it_needs(words: tuple[str, ...], also_not: tuple[str, ...]) -> None:
    script = f"""
import sys
from shardmerge.ctl.main import run
run({list(words)!r})
print([name for name in {(*_IMPORTED_FOR_EVERYTHING, *also_not)!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
