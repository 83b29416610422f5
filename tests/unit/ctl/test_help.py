"""Every command's help, hidden ones included."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from shardmerge.ctl.main import _LATER, dmctl, run  # pyright: ignore[reportPrivateUsage]
from shardmerge.ctl.options import ONE_DASH, TRUE_OR_FALSE, flags_alone, with_two_dashes
from shardmerge.ctl.shell.name_or_command import NameOrCommand
from shardmerge.proto.errors import ShardmergeError


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


def test_flags_take_the_values_that_dms_do() -> None:
    words = ["update", "t", "--flush=false", "--sync=TRUE", "--from-source=1", "--more=f", "--flush=no"]
    assert flags_alone(words) == ["update", "t", "--sync", "--from-source", "--flush=no"]
    assert flags_alone(["--", "--flush=false"]) == ["--", "--flush=false"]
    options = [option for _, command in ALL for option in command.params if isinstance(option, click.Option)]
    for name in TRUE_OR_FALSE:
        assert {option.is_flag for option in options if f"--{name}" in option.opts} == {True}


def test_a_flag_with_a_value_reaches_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["binlog-schema", "update", "t", "d", "t", "--flush=false"]) == 2
    assert "give one of SCHEMA-FILE" in capsys.readouterr().err


def test_help_of_a_command_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "binlog", "skip"]) == 0
    assert capsys.readouterr().out.startswith("Usage: dmctl binlog skip [OPTIONS] TASK|FILE")
    assert run(["help", "start-task", "skip"]) == 2
    assert "dmctl start-task has no commands of its own" in capsys.readouterr().err
    assert run(["help", "binlog", "skp"]) == 2
    assert "No such command" in capsys.readouterr().err


def test_an_unknown_command_of_a_group_gets_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["binlog-schema", "rides"]) == 2
    assert "Commands of binlog-schema: delete, list, update." in capsys.readouterr().err


def test_a_group_alone_shows_its_help_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["binlog"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("Usage: dmctl binlog [OPTIONS] COMMAND")
    assert "\n  skip     skip a statement" in said.err
    assert said.out == ""


def test_the_module_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shardmerge.ctl.main", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("dmctl ")


def test_an_import_that_fails_has_it_in_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "import", "-p", str(tmp_path)]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["result"] is False
    assert "no .yaml file in sources or tasks" in answer["msg"]
    assert answer["done"] == []


@pytest.mark.parametrize("name", sorted(_LATER))
def test_a_command_of_dm_is_answered_with_one_that_exists(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "list", "merge"]) == 1
    assert f"DM's command {name}" in capsys.readouterr().err
    for command in re.findall(r"`dmctl ([a-z-]+)", _LATER[name]):
        assert command in dmctl.commands
