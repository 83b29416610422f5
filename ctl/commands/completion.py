"""`dmctl completion bash|zsh|fish`: the script by which a shell completes dmctl's commands and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ctl.completion import SHELLS, VARIABLE


@click.command("completion", short_help="print the script that completes commands in a shell")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script by which a shell completes commands, options, and the names of tasks and sources. These are
    asked of the master (DM_MASTER_ADDR, or --master-addr in the line), for a second at most.

    \b
    Example:
        dmctl completion bash > /etc/bash_completion.d/dmctl
        dmctl completion fish > ~/.config/fish/completions/dmctl.fish
    """
    kind = get_completion_class(shell)
    if kind is not None:
        print(kind(context.find_root().command, {}, "dmctl", VARIABLE).source())
    return 0
