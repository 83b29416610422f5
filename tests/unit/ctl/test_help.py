"""Every command's help, hidden ones included."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

import click
import pytest

from ctl.groups import NameOrCommand
from ctl.main import dmctl, run
from ctl.options import ONE_DASH, with_two_dashes
from proto.errors import ShardmergeError


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, NameOrCommand):
        yield path, command.named
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _commands(each, (*path, name))
        if not command.invoke_without_command:
            return
    yield path, command


ALL = list(_commands(dmctl, ("dmctl",)))


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_help_has_an_example_that_is_understood(
    path: tuple[str, ...], command: click.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with click.Context(command, info_name=" ".join(path)) as context:
        text = command.get_help(context)
    example = re.search(r"^  Example:\n((?:      .+\n?)+)", text, re.MULTILINE)
    assert example, text
    called: list[click.Command] = []

    def recorder(of: click.Command) -> Callable[..., int]:
        def record(**_: object) -> int:
            called.append(of)
            return 0

        return record

    for _, each in ALL:
        monkeypatch.setattr(each, "callback", recorder(each))
    for line in example.group(1).splitlines():
        called.clear()
        program, *words = shlex.split(line.partition(" > ")[0])
        assert program == "dmctl"
        assert run(words) == 0
        assert command in called or command is dmctl


def test_dm_spells_its_options_with_one_dash() -> None:
    for name in ("version", "config", "master-addr", "rpc-timeout", "ssl-ca", "ssl-cert", "ssl-key"):
        assert name in ONE_DASH
        assert with_two_dashes([f"-{name}=x", "query-status", f"-{name}", "y"]) == [
            f"--{name}=x", "query-status", f"--{name}", "y",
        ]  # fmt: skip
    assert with_two_dashes(["query-status", "-s", "x", "--", "-config"])[-1] == "-config"


def test_validation_names_what_there_is_instead() -> None:
    with pytest.raises(ShardmergeError) as caught:
        dmctl.resolve_command(click.Context(dmctl), ["validation"])
    assert "dmctl compare" in caught.value.workaround
