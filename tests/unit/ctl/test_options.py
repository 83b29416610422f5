"""The types of options that several commands share."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from shardmerge.ctl.main import run
from shardmerge.ctl.options import SecondsRange


@click.command()
@click.option("--seconds", type=SecondsRange(0.5, 30))
def _command(seconds: float) -> None:
    click.echo(seconds)


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "-1", "31", "x", ""])
def test_what_is_no_number_of_seconds_is_refused(text: str) -> None:
    ran = CliRunner().invoke(_command, ["--seconds", text])
    assert ran.exit_code == 2 and "Invalid value for '--seconds'" in ran.output


def test_a_number_of_seconds() -> None:
    assert CliRunner().invoke(_command, ["--seconds", "1e0"]).output == "1.0\n"


@pytest.mark.parametrize("line", ["update-task f.yaml -s a", "-s a update-task f.yaml", "list-member -s a,b"])
def test_a_command_that_works_on_no_single_source_refuses_them(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """update-task would change the task at all sources."""
    assert run(line.split()) == 2
    assert f"{'list-member' if 'list' in line else 'update-task'} has no -s" in capsys.readouterr().err
