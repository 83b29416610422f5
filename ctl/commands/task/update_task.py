"""`dmctl update-task`: changes a running task."""

from __future__ import annotations

import click

from shardmerge.ctl.files import config_file
from shardmerge.ctl.options import shared
from shardmerge.ctl.render import tables
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


@click.command("update-task", short_help="replace a running task's file")
@click.argument("file", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="only show what would change")
@shared()
def update_task(file: str, *, dry_run: bool) -> int:
    """Replace a running task's file: further tables, other routes, other settings.

    New tables are copied with their history while the others continue, then join them; tables that the file no longer
    lets through leave the task, and their rows stay.

    \b
    Example:
        dmctl update-task merge.yaml --dry-run
    """
    session = Session.current()
    request = pb.UpdateTaskRequest(file=config_file(file), dry_run=dry_run)
    answer = session.call("update-task", lambda master: master.UpdateTask, request)
    return session.show("update-task", answer, lambda: tables.update_task(answer))
