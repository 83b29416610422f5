"""A group that accepts a name as well as a subcommand: `config task merge` and `config task update FILE`."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class NameOrCommand(click.Group):
    """An argument that is no subcommand goes to the command ``named`` as its first argument."""

    named: click.Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            return self.named.name, self.named, args
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        first = next(param for param in self.named.params if isinstance(param, click.Argument))
        return [*super().shell_complete(ctx, incomplete), *first.shell_complete(ctx, incomplete)]
