"""`dmctl help [command]`: shows the help of a command."""

from __future__ import annotations

import click


@click.command("help")
@click.argument("command", nargs=-1)
@click.pass_context
def help(context: click.Context, command: tuple[str, ...]) -> int:
    """Show the help of a command.

    \b
    Example:
        dmctl help start-task
        dmctl help binlog skip
    """
    here = context.parent or context
    for word in command:
        if not isinstance(here.command, click.Group):
            raise click.UsageError(f"{here.command_path} has no commands of its own, so there is no {word}", here)
        _, found, _ = here.command.resolve_command(here, [word])
        if found is not None:
            here = click.Context(found, info_name=word, parent=here)
    print(here.get_help())
    return 0
