"""dmctl's entry point: reads the command line, runs a command, turns every error into two lines."""

from __future__ import annotations

import gc
import os
import sys

import click
from click.shell_completion import CompletionItem

from shardmerge.ctl.command_table import COMMANDS
from shardmerge.ctl.error_report import ErrorReport, print_report
from shardmerge.ctl.options import Line, flags_alone, shared, with_two_dashes
from shardmerge.ctl.shell import completion
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError

_SEE_HELP = "See `dmctl --help` for the commands that are."
_COMPARE = "`dmctl compare TASK` compares every row of a running task, and repairs with --repair."
_SOURCE_UPDATE = "`dmctl operate-source update SOURCE-FILE` changes where a source is read; see Change a source."
_LATER = {
    **dict.fromkeys(
        ("validation", "start-validation", "stop-validation", "query-validation", "update-validation"), _COMPARE
    ),
    **dict.fromkeys(("migrate-relay", "switch-relay-master", "update-relay"), _SOURCE_UPDATE),
    "query-error": "`dmctl query-status TASK` shows each error with its way out.",
    "source": "`dmctl operate-source show` lists the sources.",
    "task": "`dmctl query-status` lists the tasks.",
    "member": "`dmctl list-member` lists masters, workers and sources.",
    "sql-skip": "`dmctl binlog skip TASK`.",
    "sql-replace": "`dmctl binlog replace TASK STATEMENT`.",
    "sql-inject": "`dmctl binlog inject TASK STATEMENT`.",
    "break-ddl-lock": "`dmctl shard-ddl-lock unlock LOCK`.",
    "refresh-worker-tasks": "nothing: masters and workers read their tasks from etcd.",
}
"""Commands of DM, of any version, that this program does not have, and those that users of other tools write, with what
replaces them: the error names it, instead of "unknown"."""


class Commands(click.Group):
    """The group: it lists the commands without an import, and an unknown one gets a coded answer with the nearest one
    that exists."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Group(commands=COMMANDS.data).format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        shown = sorted((name, one) for name, one in COMMANDS.data.items() if name.startswith(incomplete))
        names = [CompletionItem(name, help=one.get_short_help_str()) for name, one in shown if not one.hidden]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None:
            if name in _LATER:
                raise errors.ctl.NOT_SUPPORTED(what=f"DM's command {name}", instead=_LATER[name])
            import difflib

            near = difflib.get_close_matches(name, self.list_commands(ctx), 1)
            hint = f"; do you mean {near[0]}?" if near else ""
            raise click.UsageError(f"there is no command {name}{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-V", "--version", "show_version", is_flag=True, help="print the version and exit")
@shared(on_group=True)
@click.pass_context
def dmctl(context: click.Context, *, show_version: bool) -> int:
    """Merge sharded MySQL/MariaDB tables into one: the client of dm-master.

    A task is named by its name or by its file. On a terminal answers are tables, in a pipe JSON with TiDB DM's field
    names. Exit code 0 only if every result in the answer is true.

    \b
    Example:
        dmctl --master-addr 10.0.0.5:8261 query-status merge
    """
    if show_version:
        from importlib.metadata import version  # importing it takes as long as running a command

        print(f"dmctl {version('shardmerge')}")
    elif context.invoked_subcommand is None:
        line = context.find_object(Line) or Line()
        if sys.stdin.isatty() and sys.stdout.isatty() and not line.at_prompt:
            from shardmerge.ctl.shell import prompt  # importing it takes as long as running a command

            return prompt.repl(dmctl, lambda words: run(words, Line(line.values, at_prompt=True)), line.values)
        print(context.get_help())
    return 0


completion.attach(dmctl)  # its own options, before it has commands: each gets completion when it is imported
dmctl.commands = COMMANDS


def run(arguments: list[str], line: Line | None = None) -> int:
    """Run one command; the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

    ``line``: the options in force, for a line of the prompt.
    """
    line = line or Line()
    try:
        with dmctl.make_context("dmctl", flags_alone(with_two_dashes(arguments)), obj=line) as context:
            return int(dmctl.invoke(context) or 0)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "dmctl"
        print_report(
            ErrorReport.of(errors.ctl.USAGE(problem=error.format_message() + _commands_of(error), command=where))
        )
        return 2
    except ShardmergeError as error:
        print_report(ErrorReport.of(error))
        return 1
    except KeyboardInterrupt:
        print_report(ErrorReport.of(errors.ctl.INTERRUPTED()))
        return 130
    except BrokenPipeError:
        # The reader of the pipe has left; nothing more can be written there, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001 — the last resort: a bug is a coded error too
        if line.values.debug:
            import traceback

            traceback.print_exc()
        print_report(ErrorReport.of(errors.ctl.INTERNAL(kind=type(error).__name__, reason=error)))
        return 1


def _commands_of(error: click.ClickException) -> str:
    """The commands of the group in which none was understood, as a sentence; "" for other errors."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or context.parent is None or not isinstance(context.command, click.Group):
        return ""
    names = context.command.list_commands(context)
    shown = [name for name in names if (one := context.command.get_command(context, name)) is None or not one.hidden]
    return f" Commands of {context.info_name}: {', '.join(shown)}."


def main() -> None:
    """The console script."""
    # gRPC's core writes lines of its own to stderr otherwise.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if completion.VARIABLE in os.environ:
        sys.exit(completion.answer(dmctl, os.environ[completion.VARIABLE]))
    code = run(sys.argv[1:])
    gc.freeze()  # the last collection would visit all that was imported: a fifth of a command's processor time
    sys.exit(code)


if __name__ == "__main__":
    main()
