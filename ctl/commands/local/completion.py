"""`dmctl completion bash|zsh|fish`: prints the script that completes dmctl's commands and names in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from shardmerge.ctl.shell.completion import SHELLS, VARIABLE


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script that completes commands, options, and the names of tasks and sources in a shell. The names come
    from the master (DM_MASTER_ADDR, or --master-addr in the line), within a second at most.

    \b
    Example:
        dmctl completion bash > /etc/bash_completion.d/dmctl
        dmctl completion fish > ~/.config/fish/completions/dmctl.fish
    """
    kind = get_completion_class(shell)
    if kind is not None:
        print(kind(context.find_root().command, {}, "dmctl", VARIABLE).source())
    return 0
