"""Completion of the word at the cursor, for the shells and for the prompt.

Commands, options and choices are click's business (https://click.palletsprojects.com, "Shell Completion"). Names of
tasks, sources, workers and masters come from the master, with a short deadline; without an answer there are none, and
no error. The metavar of an argument, which its help shows, decides what it accepts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, shell_complete

from shardmerge.ctl.options import Line
from shardmerge.ctl.settings import resolve
from shardmerge.ctl.shell.name_or_command import NameOrCommand

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_DMCTL_COMPLETE"

_SECONDS = 1.0
_WORD = re.compile(r"[A-Z][A-Z-]*")
_NAMES = {
    "TASK": "KIND_TASK",
    "ID": "KIND_SOURCE",
    "SOURCE": "KIND_SOURCE",
    "SOURCE-ID": "KIND_SOURCE",
    "WORKER": "KIND_WORKER",
    "WORKER-ID": "KIND_WORKER",
    "MASTER": "KIND_MASTER",
}
_FILES = {"FILE": "file", "SCHEMA-FILE": "file", "DIRECTORY": "dir"}


class _Named(click.types.StringParamType):
    """A text type with completion. ``words``: the words of the metavar; ``listed``: several values with commas
    between."""

    def __init__(self, words: tuple[str, ...], *, listed: bool) -> None:
        self._words = words
        self._listed = listed

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, begun = incomplete.rpartition(",") if self._listed else ("", "", incomplete)
        # Files first: click's script for bash drops what precedes them.
        found = [CompletionItem(incomplete, type=_FILES[word]) for word in self._words if word in _FILES]
        for kind in dict.fromkeys(_NAMES[word] for word in self._words if word in _NAMES):
            names = [name for name in _names(ctx, kind) if name.startswith(begun) and name not in before.split(",")]
            found += [CompletionItem(f"{before}{comma}{name}") for name in names]
        return found


class _Bash(BashComplete):
    """Bash completion in which a name with a space is one word: one backslash for the line, one for the script's
    `read`."""

    def format_completion(self, item: CompletionItem) -> str:
        value = re.sub(r"([^\w@%+=:,./-])", r"\\\\\1", str(item.value)) if item.type == "plain" else item.value
        return f"{item.type},{value}"


def attach(command: click.Command) -> None:
    """Add completion to the arguments and options of a command and of all its subcommands."""
    for each in _all(command):
        for param in each.params:
            metavar = "WORKER" if param.name == "worker" else param.metavar or ""
            words = tuple(word for word in _WORD.findall(metavar) if word in _NAMES or word in _FILES)
            if words and ":" not in metavar and type(param.type) is click.types.StringParamType:
                param.type = _Named(words, listed="," in metavar)


def _all(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, NameOrCommand):
        yield from _all(command.named)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _all(each)


def answer(command: click.Command, instruction: str) -> int:
    """Answer a shell's script, which asks through its variable: prints candidates, or nothing."""
    add_completion_class(_Bash)
    try:
        return shell_complete(command, {"obj": Line()}, "dmctl", VARIABLE, instruction)
    except Exception:  # noqa: BLE001 — Tab must not print an error in the middle of a line
        return 1


def _names(ctx: click.Context, kind: str) -> list[str]:
    try:
        from shardmerge.ctl.client import MasterClient
        from shardmerge.proto import master_pb2 as pb

        line = ctx.find_object(Line) or Line()
        settings = resolve(line.values, os.environ)
        request = pb.GetConfigRequest(kind=kind, names_only=True)
        with MasterClient(settings, timeout=min(settings.timeout, _SECONDS)) as client:
            return [one.name for one in client.call("completion", lambda master: master.GetConfig, request).configs]
    except Exception:  # noqa: BLE001 — as above
        return []
