"""The options that every command takes, before or behind the command's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import click

from ctl.settings import Given, Output
from proto.config import point

Command = TypeVar("Command", bound=Callable[..., Any])

ONE_DASH = ("version", "config", "master-addr", "rpc-timeout", "ssl-ca", "ssl-cert", "ssl-key", "output", "debug")
"""Long options that DM's dmctl also takes with one dash, and ours besides."""

TRUE_OR_FALSE = ("remove-meta", "more", "flush", "sync", "from-source", "from-target", "force-remove")
"""Flags to which DM's dmctl also takes a value, as Go's flags do: ``--flush=false``."""

_SAID = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


@dataclass(slots=True)
class Line:
    """What was read of the command line so far; lives in the outermost click context. ``at_prompt``: of a line of the
    interactive prompt."""

    given: Given = field(default_factory=Given)
    at_prompt: bool = False


def with_two_dashes(arguments: list[str]) -> list[str]:
    """``-master-addr=x`` → ``--master-addr=x``, for the spellings that DM documents; stops at ``--``."""
    turned: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return turned + arguments[at:]
        name = argument[1:].partition("=")[0]
        turned.append("-" + argument if argument.startswith("-") and name in ONE_DASH else argument)
    return turned


def flags_alone(arguments: list[str]) -> list[str]:
    """``--flush=true`` → ``--flush``, ``--flush=false`` → nothing; stops at ``--``."""
    turned: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return turned + arguments[at:]
        flag, _, value = argument.partition("=")
        said = _SAID.get(value.lower()) if flag.startswith("--") and flag[2:] in TRUE_OR_FALSE else None
        if said is None:
            turned.append(argument)
        elif said:
            turned.append(flag)
    return turned


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    line = context.find_object(Line)
    if line is None or not value:
        return
    match parameter.name:
        case "source":
            line.given = replace(line.given, sources=(*line.given.sources, *value))
        case "master_addr" | "rpc_timeout" | "config" | "output" | "debug" | "ssl_ca" | "ssl_cert" | "ssl_key" as name:
            line.given = replace(line.given, **{name: value})
        case name:
            raise AssertionError(f"a shared option that nobody keeps: {name}")


def shared(*, on_group: bool = False) -> Callable[[Command], Command]:
    """Add the options; commands show only -s in their help, the group shows all."""
    hidden = not on_group
    kept: dict[str, Any] = {"expose_value": False, "callback": _remember}
    options = (
        click.option(
            "--master-addr",
            metavar="ADDRESS[,…]",
            hidden=hidden,
            help="dm-master to ask, HOST:PORT or unix:PATH; several: the first that answers  [env: DM_MASTER_ADDR; "
            "default: 127.0.0.1:8261]",
            **kept,
        ),
        click.option(
            "--rpc-timeout",
            metavar="DURATION",
            hidden=hidden,
            help="longest wait for an answer  [default: 10m]",
            **kept,
        ),
        click.option(
            "-s", "--source", multiple=True, metavar="ID[,…]", help="only these sources; may be repeated", **kept
        ),
        click.option(
            "--output",
            type=click.Choice([kind.value for kind in Output]),
            hidden=hidden,
            help="auto: tables on a terminal, JSON in a pipe  [default: auto]",
            **kept,
        ),
        click.option(
            "--config", metavar="FILE", hidden=hidden, help="TOML file with master-addr, rpc-timeout, ssl-…", **kept
        ),
        click.option("--debug", is_flag=True, hidden=hidden, help="show the traceback of an unexpected error", **kept),
        click.option("--ssl-ca", metavar="FILE", hidden=hidden, help="TLS: who is trusted as a master (PEM)", **kept),
        click.option("--ssl-cert", metavar="FILE", hidden=hidden, help="TLS: the certificate to show", **kept),
        click.option("--ssl-key", metavar="FILE", hidden=hidden, help="TLS: its key", **kept),
    )

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _start_time(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value:
        point.start_at(value)  # raises what is wrong with it
    return value


def _stop_at(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value:
        point.stop_at(value)
    return value


def ends(command: Command) -> Command:
    """The options that say where replication begins and ends, for all sources of a task."""
    command = click.option(
        "--stop-at",
        metavar="WHERE",
        default="",
        callback=_stop_at,
        help="end there: a time, FILE:POS or a GTID set (with -s: of that source); wins over the file's stop-at",
    )(command)
    return click.option(
        "--start-time",
        metavar="TIME",
        default="",
        callback=_start_time,
        help='task-mode incremental begins there: "2026-01-02 03:04:05" in the source\'s time zone or with an offset; '
        "earliest; latest; wins over the file's meta",
    )(command)
