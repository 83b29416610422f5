"""`dmctl update-task`: change a running task."""

from __future__ import annotations

import click

from ctl import as_table
from ctl.files import config_file
from ctl.options import shared
from ctl.session import Session
from proto import master_pb2 as pb


@click.command("update-task", short_help="give a running task another file")
@click.argument("file", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="only say what would change")
@shared()
def update_task(file: str, *, dry_run: bool) -> int:
    """Give a running task another file: further tables, other routes, other settings.

    Tables that are new to it are copied with their history while the others go on, then join them; tables that the
    file lets through no longer leave, and their rows stay.

    \b
    Example:
        dmctl update-task merge.yaml --dry-run
    """
    session = Session.current()
    request = pb.UpdateTaskRequest(file=config_file(file), dry_run=dry_run)
    answer = session.call("update-task", lambda master: master.UpdateTask, request)
    return session.show("update-task", answer, lambda: as_table.update_task(answer))
