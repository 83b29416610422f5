"""`dmctl shard-ddl-lock [task]` and `shard-ddl-lock unlock`, with DM's older spellings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.ctl.shell.name_or_command import NameOrCommand
from shardmerge.proto import master_pb2 as pb

Command = TypeVar("Command", bound=Callable[..., Any])


def _show(task: str | None) -> int:
    session = Session.current()
    request = pb.ShowDDLLocksRequest(task=task_name(task) if task is not None else "", sources=session.settings.sources)
    answer = session.call("shard-ddl-lock", lambda master: master.ShowDDLLocks, request)
    return session.show("shard-ddl-lock", answer, lambda: render.shard_ddl.locks(answer))


def _unlock(lock_id: str, owner: str, action: str | None, database: str, table: str, *, force_remove: bool) -> int:
    session = Session.current()
    request = pb.UnlockDDLLockRequest(
        id=lock_id,
        replace_owner=owner,
        force_remove=force_remove,
        action=action or "",
        database=database,
        table=table,
        sources=session.settings.sources,
    )
    answer = session.call("shard-ddl-lock unlock", lambda master: master.UnlockDDLLock, request)
    return session.show("shard-ddl-lock unlock", answer, lambda: render.shard_ddl.unlocked(answer))


def _unlock_options(command: Command) -> Command:
    """DM's flags."""
    for option in reversed(
        (
            click.argument("lock_id", metavar="LOCK-ID"),
            click.option(
                "-o", "--owner", default="", metavar="SOURCE", help="source that runs the statement  [the lock's owner]"
            ),
            click.option("-f", "--force-remove", is_flag=True, help="release all tables without running the statement"),
            click.option(
                "-a",
                "--action",
                type=click.Choice(["skip", "exec"]),
                help="only for the tables of -s, -d, -t: their statements run at the target, or do not",
            ),
            click.option("-d", "--database", default="", metavar="NAME", help="with --action: tables of this schema"),
            click.option("-t", "--table", default="", metavar="NAME", help="with --action: tables of this name"),
        )
    ):
        command = option(command)
    return command


@click.command("show-ddl-locks")
@click.argument("task", metavar="[TASK|FILE]", required=False)
@shared()
def show_ddl_locks(task: str | None) -> int:
    """Show the locks of sharding DDLs: `shard-ddl-lock`.

    \b
    Example:
        dmctl show-ddl-locks merge
    """
    return _show(task)


@click.command("unlock-ddl-lock")
@_unlock_options
@shared()
def unlock_ddl_lock(
    lock_id: str, owner: str, action: str | None, database: str, table: str, *, force_remove: bool
) -> int:
    """Decide about the lock of a sharding DDL: `shard-ddl-lock unlock`.

    \b
    Example:
        dmctl unlock-ddl-lock 'merge-`shop`.`orders`'
    """
    return _unlock(lock_id, owner, action, database, table, force_remove=force_remove)


@click.group(
    "shard-ddl-lock",
    cls=NameOrCommand,
    invoke_without_command=True,
    subcommand_metavar="[TASK|FILE] | unlock LOCK-ID …",
)
@shared()
@click.pass_context
def shard_ddl_lock(context: click.Context) -> int:
    """Show which DDL on shard tables waits for which tables, of all tasks or of one.

    \b
    Example:
        dmctl shard-ddl-lock merge
    """
    return _show(None) if context.invoked_subcommand is None else 0


shard_ddl_lock.named = show_ddl_locks


@shard_ddl_lock.command("unlock", short_help="run a DDL without waiting for the rest, or continue without it")
@_unlock_options
@shared()
def unlock(lock_id: str, owner: str, action: str | None, database: str, table: str, *, force_remove: bool) -> int:
    """Let the owner run the lock's statement at the target now, without the missing shard tables.

    All tables that are parked at it then continue. A table that reaches it later gets a lock of its own. With -f no
    source runs it: change the target by hand first. With --action, only the tables of -s, -d and -t are decided about.

    \b
    Example:
        dmctl shard-ddl-lock unlock 'merge-`shop`.`orders`' --owner mysql-01
    """
    return _unlock(lock_id, owner, action, database, table, force_remove=force_remove)
