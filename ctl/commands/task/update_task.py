"""`dmctl update-task`: changes a running task."""

from __future__ import annotations

import sys

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import config_file
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb


@click.command("update-task")
@click.argument("file", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="only show what would change")
@click.option(
    "--rename-target",
    is_flag=True,
    help="the file gives one target table another name, and changes nothing else: rename the table at the target, "
    "with RENAME TABLE, and copy nothing; asks before it does so",
)
@click.option(
    "--move-tables",
    is_flag=True,
    help="shard tables may get another target table: their history is copied into it, and the old one stays",
)
@click.option("--yes", is_flag=True, help="with --rename-target: do not ask")
@shared(by_source=False)
def update_task(file: str, *, dry_run: bool, rename_target: bool, move_tables: bool, yes: bool) -> int:
    """Replace a running task's file: further tables, other routes, other settings.

    New tables are copied with their history while the others continue, then join them; tables that the file no longer
    lets through leave the task, and their rows stay.

    \b
    Example:
        dmctl update-task merge.yaml --dry-run
        dmctl update-task merge.yaml --rename-target
    """
    session = Session.current()
    if rename_target and move_tables:
        raise click.UsageError("--rename-target copies nothing: give it without --move-tables")
    request = pb.UpdateTaskRequest(
        file=config_file(file), dry_run=dry_run, rename_target=rename_target, move_tables=move_tables
    )
    if rename_target and not dry_run and not _may_rename(session, request, is_confirmed=yes):
        return 1
    answer = _call(session, request)
    return session.show("update-task", answer, lambda: render.tables.update_task(answer))


def _may_rename(session: Session, request: pb.UpdateTaskRequest, *, is_confirmed: bool) -> bool:
    """Let the master check the rename, show it and ask. Raises REFUSED for a master that does not know the option: it
    would copy the table. Raises ``click.UsageError`` without a terminal."""
    if not is_confirmed and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("--rename-target changes a table at the target: give --yes, or confirm it on a terminal")
    answer = _call(session, pb.UpdateTaskRequest(file=request.file, rename_target=True, dry_run=True))
    if answer.result and not answer.HasField("rename"):
        raise errors.ctl.REFUSED(command="update-task", answer="the master's version does not know --rename-target")
    if answer.result and is_confirmed:
        return True
    if session.show("update-task", answer, lambda: render.tables.update_task(answer)) != 0:
        return False
    return click.confirm("Pause the task, rename the table, and resume?", err=True)


def _call(session: Session, request: pb.UpdateTaskRequest) -> pb.UpdateTaskResponse:
    return session.call("update-task", lambda master: master.UpdateTask, request)
