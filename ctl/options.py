"""The options that every command accepts, before or after the command's name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import click

from shardmerge.ctl.settings import CliValues, OutputFormat

Command = TypeVar("Command", bound=Callable[..., Any])

ONE_DASH = ("version", "config", "master-addr", "rpc-timeout", "ssl-ca", "ssl-cert", "ssl-key", "output", "debug")
"""Long options that DM's dmctl also accepts with one dash, and our own ones."""

TRUE_OR_FALSE = ("remove-meta", "more", "flush", "sync", "from-source", "from-target", "force-remove")
"""Flags for which DM's dmctl also accepts a value, as Go's flags do: ``--flush=false``."""

_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class SecondsRange(click.FloatRange):
    """A number of seconds in a range; click's own type lets NaN through, because it compares with every bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


@dataclass(slots=True)
class Line:
    """The options read so far; it lives in the outermost click context. ``at_prompt``: the line comes from the
    interactive prompt."""

    values: CliValues = field(default_factory=CliValues)
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
        flag_value = _BOOLEANS.get(value.lower()) if flag.startswith("--") and flag[2:] in TRUE_OR_FALSE else None
        if flag_value is None:
            turned.append(argument)
        elif flag_value:
            turned.append(flag)
    return turned


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    line = context.find_object(Line)
    if line is None or not value:
        return
    match parameter.name:
        case "source":
            line.values = replace(line.values, sources=(*line.values.sources, *value))
        case "master_addr" | "rpc_timeout" | "config" | "output" | "debug" | "ssl_ca" | "ssl_cert" | "ssl_key" as name:
            line.values = replace(line.values, **{name: value})
        case name:
            raise AssertionError(f"a shared option that is not stored: {name}")


def _refuse_sources(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Without the refusal a command would do more than its caller has asked for."""
    line = context.find_object(Line)
    if value or (line is not None and line.values.sources):
        raise click.UsageError(f"{context.info_name} has no -s: it does not work on single sources")


def shared(*, on_group: bool = False, by_source: bool = True) -> Callable[[Command], Command]:
    """Add the options; commands show only -s in their help, the group shows all. ``by_source``: the command works on
    the sources of -s; else it refuses them."""
    hidden = not on_group
    kept: dict[str, Any] = {"expose_value": False, "callback": _remember}
    of_sources: dict[str, Any] = kept if by_source else {**kept, "callback": _refuse_sources}
    options = (
        click.option(
            "--master-addr",
            metavar="ADDRESS[,…]",
            hidden=hidden,
            help="dm-master to call, HOST:PORT or unix:PATH; several: the first that answers  [env: DM_MASTER_ADDR; "
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
            "-s",
            "--source",
            multiple=True,
            metavar="ID[,…]",
            hidden=not by_source,
            help="only these sources; may be repeated",
            **of_sources,
        ),
        click.option(
            "--output",
            type=click.Choice([kind.value for kind in OutputFormat]),
            hidden=hidden,
            help="auto: tables on a terminal, JSON in a pipe  [default: auto]",
            **kept,
        ),
        click.option(
            "--config", metavar="FILE", hidden=hidden, help="TOML file with master-addr, rpc-timeout, ssl-…", **kept
        ),
        click.option("--debug", is_flag=True, hidden=hidden, help="show the traceback of an unexpected error", **kept),
        click.option(
            "--ssl-ca", metavar="FILE", hidden=hidden, help="TLS: the authority of masters' certificates (PEM)", **kept
        ),
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
        from shardmerge.proto.config import position

        position.start_at(value)  # raises the error of a malformed value
    return value


def _stop_at(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value:
        from shardmerge.proto.config import position

        position.stop_at(value)
    return value


def start_and_stop_options(command: Command) -> Command:
    """Add the options for the start and the end of replication, for all sources of a task."""
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
