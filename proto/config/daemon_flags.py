"""The command lines of dm-master and dm-worker: every key of the file is a flag, in DM's spellings too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from pydantic.fields import FieldInfo

from shardmerge.proto.config.daemon.model import DaemonFile
from shardmerge.proto.config.docs.samples import sample_of
from shardmerge.proto.config.key import bare, default_text, fields_of, inner_model, key_of

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_SHORT = {"log-level": "-L"}


def flag_names(kind: type[DaemonFile]) -> tuple[str, ...]:
    """The keys that are flags: all except blocks of further keys."""
    return tuple(
        key
        for key, _, field in fields_of(kind)
        if inner_model(field.annotation) is None and not str(bare(field.annotation)).startswith("dict")
    )


def with_two_dashes(arguments: Iterable[str], names: Iterable[str]) -> list[str]:
    """``-master-addr=x`` → ``--master-addr=x``, as DM accepts both; stops at ``--``."""
    known = {*names, "config", "version", "print-sample-config", "help"}
    turned: list[str] = []
    over = False
    for argument in arguments:
        over = over or argument == "--"
        one_dash = argument.startswith("-") and not argument.startswith("--")
        long = not over and one_dash and argument[1:].partition("=")[0] in known
        turned.append("-" + argument if long else argument)
    return turned


def given_flags(values: Mapping[str, str | None]) -> dict[str, str]:
    """The flags on the command line, by key."""
    return {name.replace("_", "-"): value for name, value in values.items() if value is not None}


def flags_of(kind: type[DaemonFile]) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with options for every key, and ``--config``, ``-V``, ``--print-sample-config``."""

    def add(function: Callable[..., Any]) -> click.Command:
        names = flag_names(kind)
        made = [_option(key, name, field) for key, name, field in fields_of(kind) if key in names]
        for option in reversed([*_common(kind), *made]):
            function = option(function)
        return click.command(context_settings={"help_option_names": ["-h", "--help"]})(function)

    return add


def _option(key: str, name: str, field: FieldInfo) -> _Decorator:
    info = key_of(field)
    unused = bool(info.refused) or info.effect.startswith("no effect")
    default = info.default or default_text(field)
    names = [f"--{key}", name]
    if key in _SHORT:
        names.append(_SHORT[key])
    more: dict[str, Any] = {"hidden": unused, "help": info.meaning + (f"  [default: {default}]" if default else "")}
    if bare(field.annotation) is bool:
        more |= {"is_flag": False, "flag_value": "true"}
    return click.option(*names, **more)


def _common(kind: type[DaemonFile]) -> Iterable[_Decorator]:
    def show_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            click.echo(f"{context.info_name} {version('shardmerge')}")
            context.exit()

    def print_sample(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            click.echo(sample_of(kind), nl=False)
            context.exit()

    quiet: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
    yield click.option(
        "--config", "path", type=click.Path(path_type=Path), help="Configuration file: YAML, or TOML as in DM."
    )
    yield click.option("-V", "--version", callback=show_version, help="Print the version and exit.", **quiet)
    yield click.option(
        "--print-sample-config", callback=print_sample, help="Print a file to start from and exit.", **quiet
    )
